"""Basil: decentralised training on a ring that keeps learning when some of the nodes lie.

>>> import basil
>>> result = basil.run("demo", out="runs/mine", set={"scheme.rounds": 20})    # doctest: +SKIP
>>> result.summary["accuracy"]["worst"]                                       # doctest: +SKIP

`run`, `compare`, `sweep`, `report` and `plan` do what the commands do; `basil.theory` has the
paper's propositions.
For one's own attacks, rules, data sets, … there are `basil.register`, `basil.testing` and the types
below (docs/start/extending.md).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from basil import register, testing, theory
    from basil.api import Result, compare, load_models, plan, report, resume, run, sweep
    from basil.attack import Attack, DataAttack, View, declares
    from basil.data import Dataset, Samples, from_samples
    from basil.errors import UserError
    from basil.protocol import requests
    from basil.protocol.node import Node
    from basil.protocol.rules import Candidates, Choice
    from basil.topology import Graph, Population

__version__ = "0.1.0"
__all__ = [
    "Attack",
    "Candidates",
    "Choice",
    "DataAttack",
    "Dataset",
    "Graph",
    "Node",
    "Population",
    "Result",
    "Samples",
    "UserError",
    "View",
    "compare",
    "declares",
    "from_samples",
    "load_models",
    "plan",
    "register",
    "report",
    "requests",
    "resume",
    "run",
    "sweep",
    "testing",
    "theory",
]

_HOMES = {
    "basil.attack": ("Attack", "DataAttack", "View", "declares"),
    "basil.data": ("Dataset", "Samples", "from_samples"),
    "basil.errors": ("UserError",),
    "basil.protocol.node": ("Node",),
    "basil.protocol.rules": ("Candidates", "Choice"),
    "basil.topology": ("Graph", "Population"),
}
_MODULES = {
    "register": "basil.register",
    "requests": "basil.protocol.requests",
    "testing": "basil.testing",
    "theory": "basil.theory",
}


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Import on first use: PyTorch takes seconds, and `basil --help` should not."""
    if name not in __all__:
        raise AttributeError(f"module 'basil' has no attribute {name!r}")
    from importlib import import_module

    if name in _MODULES:
        return import_module(_MODULES[name])
    home = next((home for home, names in _HOMES.items() if name in names), "basil.api")
    return getattr(import_module(home), name)
