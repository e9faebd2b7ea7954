"""Data sharing: among a few nodes whose samples are numbers (node i owns 100·i, 100·i + 1, …), and
in small whole runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from basil import rng
from basil.attack.basket_faults import FAULTS, meddler
from basil.engine.durations import Durations
from basil.engine.simulate import Simulator
from basil.protocol.requests import Arrival, Protocol, Send
from basil.protocol.sharing.acds import Sharer, SharingOutcome, acds
from basil.protocol.sharing.basket import Basket
from basil.protocol.sharing.timetable import Timetable
from basil.recipe import parse
from basil.topology import divide

from ring_helpers import Quadratic, Witness

PUBLIC = 1_000_000  # dummies are numbered from here on
OWN = 100  # samples of each node


@dataclass
class Passing:
    """One Send of a basket."""

    sender: int
    to: tuple[int, ...]
    round: int
    numbers: list[int]


@dataclass
class Shared:
    outcomes: dict[int, SharingOutcome] = field(default_factory=dict)
    sent: list[Passing] = field(default_factory=list)
    bits: dict[int, float] = field(default_factory=dict)  # sent (a multicast once) and received
    table: Any = None
    bytes: int = 0

    def received(self, node: int) -> set[int]:
        return set(self.outcomes[node].received.rows.tolist())

    def offered(self, node: int) -> set[int]:
        return set(self.outcomes[node].offered.rows.tolist())

    @property
    def seconds(self) -> float:
        return max(outcome.time for outcome in self.outcomes.values())

    def incidents(self, node: int) -> list[tuple[int, str, int, int]]:
        return [(i.round, i.what, i.about, i.samples) for i in self.outcomes[node].incidents]


def share(
    nodes: int,
    groups: int,
    batches: int,
    size: int,
    *,
    bits: float = 800.0,
    megabits: float = 1.0,
    opening: bool = False,
    known_dummies: bool = True,
    faults: Mapping[int, str] | None = None,
    fault_round: int = 1,
    own: int = OWN,
    seed: int = 0,
    latency: float = 0.0,
    senders: int = 1,
) -> Shared:
    """Run Algorithm 2, the nodes in the order of their ids."""
    timing = Durations(0.0, 0.0, megabits, latency)
    table = Timetable(
        divide(tuple(range(nodes)), groups),
        batches,
        size,
        lambda k: timing.link(Basket(np.zeros(k), bits).wire_bytes),
        opening=opening,
        senders=senders,
    )
    shared = Shared(table=table)

    def start(node: int, now: float, state: Any, rejoin: Any) -> Protocol:
        stream = rng.stream(seed, "node", node, "sharing")
        sharer = Sharer(
            id=node,
            table=table,
            samples=Basket(np.arange(own) + OWN * node, bits),
            dummies=lambda k: Basket(PUBLIC + stream.integers(1000, size=k), bits),
            is_sample=lambda basket: basket.rows >= 0,
            is_dummy=lambda basket: (basket.rows >= PUBLIC) & known_dummies,
            stream=stream,
            start=now,
        )
        fault = FAULTS[(faults or {}).get(node, "none")]
        return tapped(node, meddler(acds(sharer), fault, fault_round))

    def tapped(node: int, protocol: Any) -> Protocol:
        answer = None
        shared.bits[node] = 0.0
        while True:
            try:
                request = protocol.send(answer)
            except StopIteration as end:
                shared.outcomes[node] = end.value
                return
            if isinstance(request, Send) and isinstance(request.body, Basket) and request.to:
                numbers = request.body.rows.tolist()
                shared.sent.append(Passing(node, request.to, request.round, numbers))
                shared.bits[node] += 8 * request.body.wire_bytes
            answer = yield request
            if isinstance(answer, Arrival) and answer.round == table.global_round:
                assert isinstance(answer.body, Basket)
                shared.bits[node] += 8 * answer.body.wire_bytes

    compute = Quadratic((0.0,) * nodes, 0.0).compute()
    simulator = Simulator(dict.fromkeys(range(nodes), False), start, compute, timing, Witness())
    assert simulator.run()
    shared.bytes = simulator.done.bytes
    return shared


def recipe(**sections: dict[str, Any]) -> Any:
    tree: dict[str, Any] = {
        "seed": 3,
        "data": {"partition": "sorted"},
        "ring": {"nodes": 8, "byzantine": 2},
        "sharing": {"alpha": 0.1, "batches": 3, "groups": 2},
        "scheme": {"rounds": 4},
        "learning": {"batch": 16, "rate": 0.1},
        "record": {"every": 2, "checkpoint": 3600},
    }
    for section, values in sections.items():
        tree.setdefault(section, {}).update(values)
    return parse(tree)
