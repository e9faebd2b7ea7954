"""`torch.compile`, for processes that all want the same.

Processes that share the rings of a comparison come to the same programs at the same moment.  If
each made code of them, all cores would do the same work: one does it, and the others wait for what
it leaves in PyTorch's cache on the disk.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch.fx import GraphModule


def compiled_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """What `torch.compile` makes of a function, for the sizes of its arguments."""
    made: Callable[..., Any] = torch.compile(function, dynamic=False, backend=generate)
    return made


def generate(graph: GraphModule, inputs: Sequence[Any]) -> Any:
    """The code for a program, by PyTorch's own compiler."""
    from torch._inductor.compile_fx import compile_fx  # takes seconds
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    text = graph.print_readable(print_output=False)  # says all sizes, too
    name = hashlib.sha256(text.encode()).hexdigest()
    with one_before_others(Path(cache_dir()) / "basil" / name):
        return compile_fx(graph, inputs)


@contextmanager
def one_before_others(place: Path) -> Iterator[None]:
    """The first goes on at once.  Those that come meanwhile wait until it is done, and then go on
    together.
    """
    lock = FileLock(place)
    with suppress(OSError):  # without a lock everybody is the first
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            with lock:  # it is done, or it has died
                pass
    try:
        yield
    finally:
        lock.release()
