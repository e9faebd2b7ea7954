"""A ring small enough to follow with a pencil; and runs that are stopped and compared."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from basil.attack import ArmedAttack, Knowledge, adversary, declares
from basil.attack.view import View
from basil.data import Samples
from basil.engine.durations import Durations
from basil.engine.process import Absence
from basil.engine.simulate import Simulator
from basil.learning.compute import Compute
from basil.learning.layout import Layout
from basil.learning.models import half_squared_error, linear
from basil.learning.pool import Batch, Pool
from basil.protocol.basil import basil, r_plain
from basil.protocol.node import GraphPlace, GroupPlace, Node, RingPlace
from basil.protocol.requests import Protocol, Record
from basil.protocol.rules import lowest_loss
from basil.topology import Ring


@dataclass(frozen=True)
class Quadratic:
    """Node i holds one number a_i and the loss ½ (x − a_i)²; the model is one number x."""

    numbers: tuple[float, ...]
    x0: float

    def compute(self) -> Compute:
        n = len(self.numbers)
        x = np.ones((n, 1), np.float32)
        y = np.array(self.numbers, np.float32)
        network = linear((1,), 0)
        with torch.no_grad():
            next(network.parameters()).fill_(self.x0)
        return Compute(network, half_squared_error, Pool(Samples(x, y), (0.0,), (1.0,)))


@dataclass(frozen=True)
class Turn:
    round: int
    node: int
    chosen: int | None
    value: float
    time: float


class UnitCosts(Durations):
    """A model takes `link` seconds to arrive; a note without a model takes none."""

    def link(self, size: int) -> float:
        return self.megabits if size == 4 else 0.0


class Witness:
    """Notes every finished turn."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def record(self, node: int, record: Record, time: float) -> None:
        self.turns.append(Turn(record.round, node, record.chosen, float(record.model[0]), time))

    def instant(self, simulator: Simulator) -> bool:
        return True


def plain_node(node: int, compute: Compute, **changes: Any) -> Node:
    """A node that draws its own number in every round; what a test is about, it changes."""
    usual: dict[str, Any] = {
        "ring": Ring((0, 1, 2)),
        "connectivity": 2,
        "reach": 2,
        "rule": lowest_loss,
        "id": node,
        "rounds": 1,
        "initial_model": compute.initial,
        "draw": lambda k: (Batch(np.array([node])),),
        "rate": lambda k: 0.5,
        "key": lambda k: 0,
        "patience": 1.0,
    }
    given = {**usual, **changes}

    def part(kind: type) -> Any:
        return kind(**{f.name: given.pop(f.name) for f in fields(kind) if f.name in given})

    places = {"on_ring": RingPlace, "on_rings": GroupPlace, "on_graph": GraphPlace}
    return Node(**{name: part(kind) for name, kind in places.items()}, **given)


def sender_of(
    value: float | None, place: Node, scheme: Callable[[Node], Protocol], start: int, layout: Layout
) -> Protocol:
    """A Byzantine node whose models are this value throughout (None: it sends nothing)."""

    @declares()
    def constant(view: View) -> Tensor | None:
        return None if value is None else torch.full_like(view.honest, value)

    return adversary(place, scheme, ArmedAttack(constant, start=start), Knowledge(layout))


def simulate_quadratic(
    problem: Quadratic,
    connectivity: int,
    rounds: int,
    rate: float,
    *,
    sends: Mapping[int, float | None] | None = None,
    lie_from: int = 1,
    times: tuple[float, float, float] = (0.001, 0.002, 0.01),
    on_arrival: bool = True,
    dropouts: int = 0,
    absences: tuple[Absence, ...] = (),
    patience: float = 1000.0,
    defended: bool = True,
) -> list[Turn]:
    """Run Basil (or R-plain) with nodes in the order of their ids; `sends`: by Byzantine nodes."""
    compute = problem.compute()
    n = len(problem.numbers)
    ring = Ring(range(n))
    sends = sends or {}
    timing = UnitCosts(*times)

    def start(
        node: int, now: float, state: dict[str, Any] | None, rejoin_round: int | None
    ) -> Protocol:
        place = plain_node(
            node,
            compute,
            ring=ring,
            connectivity=connectivity,
            reach=connectivity + dropouts,
            rounds=rounds,
            rate=lambda k: rate,
            patience=patience,
            score_on_arrival=on_arrival,
            start=now,
            state=state,
            rejoin_round=rejoin_round,
        )
        scheme = basil if defended else r_plain
        if node not in sends:
            return scheme(place)
        return sender_of(sends[node], place, scheme, lie_from, compute.layout)

    witness = Witness()
    flags = {node: node in sends for node in range(n)}
    assert Simulator(flags, start, compute, timing, witness, absences).run()
    return witness.turns


def files_of_run(folder: Path) -> tuple[Any, ...]:
    """All that a run leaves, without the seconds that it took."""
    summary = json.loads((folder / "summary.json").read_text())
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for entry in [summary, *metrics]:
        del entry["seconds"]
    models = (folder / "models.safetensors").read_bytes()
    joins = folder / "joins.csv"
    between = joins.read_text() if joins.exists() else None
    return summary, metrics, (folder / "selections.csv").read_text(), between, models


class StopAfter:
    def __init__(self, turns: int) -> None:
        self.left = turns

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0
