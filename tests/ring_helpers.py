"""A ring small enough to follow with a pencil."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from basil.attack import adversary, declares
from basil.attack.view import View
from basil.data import Samples
from basil.engine.process import Absence
from basil.engine.simulate import Simulator
from basil.engine.timing import Timing
from basil.learning.compute import Compute
from basil.learning.models import half_squared_error, linear
from basil.learning.pool import Batch, Pool
from basil.protocol.basil import basil, r_plain
from basil.protocol.node import Node
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


class UnitCosts(Timing):
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
    """Run Basil (or R-plain) with the nodes in the order of their ids; `sends`: what liars send."""
    compute = problem.compute()
    n = len(problem.numbers)
    ring = Ring(range(n))
    sends = sends or {}
    timing = UnitCosts(*times)

    def start(
        node: int, now: float, state: dict[str, Any] | None, rejoin_round: int | None
    ) -> Protocol:
        place = Node(
            id=node,
            ring=ring,
            connectivity=connectivity,
            reach=connectivity + dropouts,
            rounds=rounds,
            initial_model=compute.initial,
            draw=lambda k: (Batch(np.array([node])),),
            rate=lambda k: rate,
            key=lambda k: 0,
            rule=lowest_loss,
            patience=patience,
            score_on_arrival=on_arrival,
            start=now,
            state=state,
            rejoin_round=rejoin_round,
        )
        scheme = basil if defended else r_plain
        if node not in sends:
            return scheme(place)
        value = sends[node]

        @declares()
        def constant(view: View) -> Tensor | None:
            return None if value is None else torch.full_like(view.honest, value)

        return adversary(place, scheme, constant, {}, lie_from, compute.layout, 0, {})

    witness = Witness()
    flags = {node: node in sends for node in range(n)}
    assert Simulator(flags, start, compute, timing, witness, absences).run()
    return witness.turns
