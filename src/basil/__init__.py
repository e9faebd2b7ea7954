"""Basil: decentralised training on a ring that keeps learning when some of the nodes lie.

>>> import basil
>>> result = basil.run("demo", out="runs/mine")          # doctest: +SKIP
>>> result.summary["accuracy"]["worst"]                  # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from basil.api import Result, load_models, resume, run
    from basil.data import Dataset, Samples
    from basil.errors import UserError

__version__ = "0.1.0"
__all__ = ["Dataset", "Result", "Samples", "UserError", "load_models", "resume", "run"]

_HOMES = {"Dataset": "basil.data", "Samples": "basil.data", "UserError": "basil.errors"}


def __getattr__(name: str) -> Any:
    """Import on first use: PyTorch takes seconds, and `basil --help` should not."""
    if name not in __all__:
        raise AttributeError(f"module 'basil' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "basil.api")), name)
