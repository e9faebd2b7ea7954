"""Rings in parallel, small enough to follow with a pencil: the model is one number."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from basil.attack import ArmedAttack, Knowledge, adversary, declares
from basil.attack.view import View
from basil.engine.process import Absence
from basil.engine.simulate import Simulator
from basil.protocol.basil_plus import basil_plus
from basil.protocol.node import Node
from basil.protocol.numbering import STAGES, Numbering
from basil.protocol.requests import Protocol, Record, Send
from basil.topology import Grouping, Ring

from ring_helpers import Quadratic, UnitCosts, plain_node


@dataclass(frozen=True)
class Choice:
    """One record: what a node chose in a stage, or (`last`) what it held at the end of a round."""

    round: int
    stage: str
    node: int
    chosen: int | None
    value: float
    time: float
    last: bool


@dataclass
class Story:
    """All that was recorded and sent in a run."""

    choices: list[Choice] = field(default_factory=list)
    sent: list[tuple[float, int, Send]] = field(default_factory=list)  # time, sender, what
    time: float = 0.0

    def record(self, node: int, record: Record, time: float) -> None:
        chosen = None if record.selected is None else record.chosen
        value = float(record.model[0])
        self.choices.append(
            Choice(record.round, record.stage, node, chosen, value, time, record.last)
        )
        self.time = max(self.time, time)

    def instant(self, simulator: Simulator) -> bool:
        return True

    def in_stage(self, k: int, stage: str) -> dict[int, int | None]:
        """Who chose whom; the last choice where a node made several."""
        rows = [c for c in self.choices if (c.round, c.stage) == (k, stage)]
        return {c.node: c.chosen for c in rows if not (c.last and c.chosen is None)}

    def held(self, k: int) -> dict[int, float]:
        """What nodes hold at the end of a global round."""
        return {c.node: c.value for c in self.choices if c.round == k and c.last}


Lie = Callable[[Tensor], Tensor | None]


def simulate_groups(
    problem: Quadratic,
    groups: int,
    connectivity: int,
    rounds: int,
    rate: float = 0.5,
    *,
    laps: int = 1,
    fanout: int = 0,
    scheme: Callable[[Node], Protocol] = basil_plus,
    lies: Mapping[int, Lie] | None = None,
    stages: Collection[str] = STAGES,
    times: tuple[float, float, float] = (0.001, 0.002, 0.01),
    on_arrival: bool = True,
    dropouts: int = 0,
    absences: tuple[Absence, ...] = (),
    patience: float = 10.0,
) -> Story:
    """Run a scheme on G rings in the order of the ids; `lies`: what nodes make of their models."""
    compute = problem.compute()
    n = len(problem.numbers)
    ring, grouping = Ring(range(n)), Grouping(tuple(range(n)), groups, fanout)
    lies, story = lies or {}, Story()

    def start(
        node: int, now: float, state: dict[str, Any] | None, rejoin_round: int | None
    ) -> Protocol:
        place = plain_node(
            node,
            compute,
            ring=ring,
            grouping=grouping,
            laps=laps,
            connectivity=connectivity,
            reach=connectivity + dropouts,
            rounds=rounds,
            rate=lambda k: rate,
            patience=patience,
            hop_patience=connectivity * patience,
            score_on_arrival=on_arrival,
            start=now,
            state=state,
            rejoin_round=rejoin_round,
        )
        protocol = scheme(place)
        if node in lies:
            attack = lies[node]

            @declares(trains=True)
            def lie(view: View) -> Tensor | None:
                return attack(view.honest)

            numbering = Numbering(laps, joined=groups > 1)
            known = Knowledge(compute.layout, numbering=numbering)
            protocol = adversary(place, scheme, ArmedAttack(lie, stages=stages), known)
        return _overheard(node, protocol)

    def _overheard(node: int, protocol: Protocol) -> Protocol:
        answer: Any = None
        while True:
            try:
                request = protocol.send(answer)
            except StopIteration:
                return
            answer = yield request
            if isinstance(request, Send):
                story.sent.append((answer, node, request))

    flags = {node: node in lies for node in range(n)}
    assert Simulator(flags, start, compute, UnitCosts(*times), story, absences).run()
    return story


def times_1000(model: Tensor) -> Tensor:
    return 1000 * model


def nothing(model: Tensor) -> None:
    return None


def constant(value: float) -> Lie:
    return lambda model: torch.full_like(model, value)
