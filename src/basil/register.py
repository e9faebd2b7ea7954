"""Decorators that enter one's own attack, rule, scheme, … under a short name.

>>> from basil import register
>>> @register.attack("overshoot", trains=True)               # doctest: +SKIP
... def overshoot(view, *, factor=20.0):
...     return view.chosen + factor * (view.honest - view.chosen)

A recipe then names it `attack.name = "overshoot"`, in this process and in those that it starts.
What such a function takes and returns: docs/start/extending.md.
"""

from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from basil.attack import ATTACKS, Attack, DataAttack, declares
from basil.attack.data import Poison
from basil.attack.view import Declared, Lie, Trial
from basil.data import DATASETS, PARTITIONS
from basil.errors import UserError
from basil.learning.metrics import HIGHER, METRICS
from basil.learning.models import LOSSES, MODELS
from basil.learning.optimizers import OPTIMIZERS
from basil.learning.schedule import SCHEDULES
from basil.protocol.graph.mixing import MIXINGS
from basil.protocol.rules import RULES
from basil.protocol.schemes import GRAPH, NOTHING, POOL, RING, RINGS, SCHEMES
from basil.table import Table, states
from basil.topology import GRAPHS, WEIGHTS

F = TypeVar("F", bound=Callable[..., Any])


def attack(
    name: str, **declared: Unpack[Declared]
) -> Callable[[Callable[..., Lie | Trial]], Attack]:
    """An attack on what is sent, (view, *, options) -> Lie; the keywords as of `declares`."""
    declare = declares(**declared)
    return lambda function: ATTACKS.register(name, declare(function))


def data_attack(name: str, triggered: Poison | None = None) -> Callable[[Poison], Attack]:
    """An attack through the samples, (samples, dataset, draw, *, options) -> Samples."""
    return lambda function: ATTACKS.register(name, DataAttack(function, triggered))


def rule(name: str) -> Callable[[F], F]:
    """A selection rule, a generator (candidates, *, options) that returns a `Choice`."""
    return _into(RULES, name)


def scheme(name: str, on: str = RING) -> Callable[[F], F]:
    """A scheme, a generator (node, *, options) over requests; on: "ring", "rings", "graph", …"""
    if on not in (known := (RING, RINGS, GRAPH, NOTHING, POOL)):
        raise UserError(f"scheme {name!r}: on = {on!r} must be one of {', '.join(known)}")
    return _into(SCHEMES, name, on=on)


def graph(name: str, random: bool = False) -> Callable[[F], F]:
    """A graph, (people, stream, *, options) -> edges; random: drawn again if it is cut."""
    return _into(GRAPHS, name, random=random)


def weights(name: str) -> Callable[[F], F]:
    """Weights on a graph, (graph, node) -> weight of each neighbour."""
    return _into(WEIGHTS, name)


def mixing(name: str) -> Callable[[F], F]:
    """A pre-aggregation, (node, *, options) -> a generator from a RoundInput to another."""
    return _into(MIXINGS, name)


def partition(name: str) -> Callable[[F], F]:
    """A partition, (labels, nodes, rng, *, options) -> indices of the samples of each node."""
    return _into(PARTITIONS, name)


def dataset(name: str) -> Callable[[F], F]:
    """A data set, (seed, *, options) -> Dataset."""
    return _into(DATASETS, name)


def model(name: str, regression: bool = False) -> Callable[[F], F]:
    """A network, (shape, classes, *, options) or (*, options) -> nn.Module; a class does, too."""
    return _into(MODELS, name, regression=regression)


def loss(name: str) -> Callable[[F], F]:
    """A loss, (outputs, targets, *, options) -> one number for each sample."""
    return _into(LOSSES, name)


def optimizer(name: str) -> Callable[[F], F]:
    """An optimiser, (model, gradient, rate, remembered, *, options) -> the model after a step."""
    return _into(OPTIMIZERS, name)


def metric(name: str, better: str = HIGHER) -> Callable[[F], F]:
    """A metric, (outputs, targets, *, options) -> a number, or one a sample; better: or "lower"."""
    return _into(METRICS, name, better=better)


def schedule(name: str) -> Callable[[F], F]:
    """A learning rate in each round, (k, rate, rounds, *, options) -> float."""
    return _into(SCHEDULES, name)


def _into(table: Table[Any], name: str, **known: Any) -> Callable[[F], F]:
    def enter(function: F) -> F:
        table.register(name, states(**known)(function))
        return function

    return enter
