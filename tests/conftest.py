"""One thread: what the tests compare bit for bit must not depend on the number of cores.

And no width of a terminal: sentences are compared as they are.  And Ctrl-C as at a terminal: what a
script starts in the background ignores it, and so would all processes that tests start.
"""

import importlib
import importlib.util
import os
import signal
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # for what test files share
torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")  # readline sets it for child processes, and os.environ does not know


@pytest.fixture(scope="module")
def byzfl() -> Iterator[types.SimpleNamespace]:
    """byzfl's rules and attacks alone: the package imports torchvision, which we do without."""
    spec = importlib.util.find_spec("byzfl")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("byzfl is not installed")
    package = types.ModuleType("byzfl")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["byzfl"] = package
    try:
        parts = [importlib.import_module(f"byzfl.{name}") for name in ("attacks", "aggregators")]
        yield types.SimpleNamespace(**{k: v for part in parts for k, v in vars(part).items()})
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "byzfl"]:
            del sys.modules[name]
