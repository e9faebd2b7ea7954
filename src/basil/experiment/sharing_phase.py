"""Data sharing before the training: Algorithm 2 among the nodes of an experiment."""

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, field, fields
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from basil import rng
from basil.attack.basket_faults import FAULTS, meddler
from basil.data import Dataset
from basil.engine.durations import Durations
from basil.engine.process import Absence, Work
from basil.engine.simulate import Simulator
from basil.experiment.node_data import NodeData
from basil.experiment.offers import label_type
from basil.learning.compute import Compute
from basil.protocol.drive import Driver
from basil.protocol.requests import Arrival, Protocol, Record, Request, Send
from basil.protocol.sharing import anonymity
from basil.protocol.sharing.acds import Sharer, SharingOutcome, acds
from basil.protocol.sharing.basket import Basket
from basil.protocol.sharing.timetable import Timetable
from basil.recipe import Recipe
from basil.record.run_folder import ANONYMITY, SHARING, write_json
from basil.topology import divide


@dataclass
class Shared:
    """What came of it."""

    table: Timetable
    byzantine: frozenset[int] = frozenset()
    outcomes: dict[int, SharingOutcome] = field(default_factory=dict)
    traffic: Counter[int] = field(default_factory=Counter)  # node -> bytes as Prop. 3 counts them
    work: Work = field(default_factory=Work)
    noise: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return max(outcome.time for outcome in self.outcomes.values())

    def received(self) -> dict[int, NDArray[np.int64]]:
        return {node: outcome.received.rows for node, outcome in self.outcomes.items()}

    def known_to(self, node: int, own: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """A Byzantine node's knowledge: samples of others, and its own that nobody else has."""
        if node not in self.outcomes:  # it was away
            return {}
        outcome = self.outcomes[node]
        private = np.setdiff1d(own, outcome.offered.rows)
        return {"received": outcome.received.rows, "private": private}

    def anonymity(self) -> list[anonymity.Row]:
        ordered = sorted(self.outcomes.items())
        return [row for i, o in ordered for row in anonymity.rows(self.table, i, o.receipts)]

    def facts(self) -> dict[str, Any]:
        """For the summary."""
        return {
            "samples_in_a_batch": self.table.size,
            "received": sorted({len(o.received) for o in self.outcomes.values()}),
            "incidents": sum(len(o.incidents) for o in self.outcomes.values()),
            "seconds": self.seconds,
            "bytes": self.work.bytes,
            "bytes_of_busiest_node": max(self.traffic.values(), default=0),
            "possible_owners": self.possible_owners(),
            **({"noise": self.noise} if self.noise else {}),
        }

    def possible_owners(self) -> dict[str, dict[str, int]]:
        """How many samples may have had so many owners, for whom.

        By the paper's count; for receivers that know dummies when they see them; and, of what
        honest nodes gave, for all Byzantine nodes of this run together.
        """
        paper, knowing, colluding = Counter[int](), Counter[int](), Counter[int]()
        for row in self.anonymity():
            paper[row.candidates] += row.samples
            knowing[row.candidates_if_dummies_known] += row.samples
        for node, candidates in anonymity.arcs(self.table, self.byzantine).items():
            if node in self.outcomes:
                colluding[candidates] += len(self.outcomes[node].offered)
        counts = {"paper": paper, "dummies_known": knowing, "liars_collude": colluding}
        return {
            name: {str(k): count[k] for k in sorted(count) if count[k]}
            for name, count in counts.items()
        }

    def write(self, folder: Path) -> None:
        """Who got how much, what went wrong, and how many may have owned what was received."""
        nodes = {
            str(node): {
                "offered": len(outcome.offered),
                "received": len(outcome.received),
                "seconds": outcome.time,
                "incidents": [asdict(incident) for incident in outcome.incidents],
            }
            for node, outcome in sorted(self.outcomes.items())
        }
        write_json(
            folder / SHARING,
            {
                **self.facts(),
                "groups": self.table.groups,
                "nodes": nodes,
            },
        )
        names = [f.name for f in fields(anonymity.Row)]
        lines = [",".join(names)]
        lines += [",".join(str(getattr(row, name)) for name in names) for row in self.anonymity()]
        (folder / ANONYMITY).write_text("\n".join(lines) + "\n", encoding="utf-8")


def bits_of_a_sample(data: Dataset) -> int:
    """x as it is stored, and its label."""
    return 8 * (int(data.train.x[:1].nbytes) + label_type(data.train.y).itemsize)


def share(
    recipe: Recipe, held: NodeData, data: Dataset, compute: Compute, timing: Durations
) -> Shared:
    """Let all nodes share, on a virtual clock that starts at 0."""
    part, offers, bits = recipe.sharing, held.offers, bits_of_a_sample(data)
    participants = held.participants
    assert offers is not None
    table = timetable(recipe, held, lambda samples: timing.link(ceil(samples * bits / 8)))
    noise = offers.noise.facts(data, part.batches * offers.size) if offers.noise else {}
    shared = Shared(table, participants.byzantine, noise=noise)

    def basket(numbers: NDArray[np.int64]) -> Basket:
        return Basket(numbers, bits)

    def sharer(node: int, now: float) -> Sharer:
        stream = rng.stream(recipe.seed, "node", node, "sharing")
        return Sharer(
            id=node,
            table=table,
            samples=basket(offers.of[node]),
            dummies=lambda k: basket(stream.choice(offers.dummies, k)),
            is_sample=lambda those: (those.rows >= 0) & (those.rows < len(offers)),
            is_dummy=lambda those: those.rows >= len(offers.train),
            stream=stream,
            start=now,
        )

    def start(node: int, now: float, state: dict[str, Any] | None, rejoin: int | None) -> Protocol:
        fault = part.fault if node in participants.byzantine else "none"
        protocol = meddler(acds(sharer(node, now)), FAULTS[fault], part.fault_round)
        return _metered(node, protocol, shared)

    away = tuple(Absence(e.node, 1, None) for e in participants.events if e.leaves == 1)
    nodes = dict.fromkeys(participants.members, False)
    simulator = Simulator(nodes, start, compute, timing, _Nobody(), away)
    simulator.run()
    shared.work = simulator.done
    return shared


def timetable(recipe: Recipe, held: NodeData, hop: Callable[[int], float]) -> Timetable:
    """When each basket is due, if so many samples take so long from node to node."""
    part, offers = recipe.sharing, held.offers
    assert offers is not None
    return Timetable(
        divide(held.participants.ring.order, part.groups),
        part.batches,
        offers.size,
        hop,
        max(1.0, recipe.time.patience),
        part.opening,
        part.senders,
    )


def _metered(
    node: int, protocol: Generator[Request, Any, SharingOutcome], shared: Shared
) -> Protocol:
    """Keep the outcome; count what a node sends (a multicast once) and hears from other groups."""
    driver = Driver(protocol)
    for request in driver:
        if isinstance(request, Send) and isinstance(request.body, Basket) and request.to:
            shared.traffic[node] += request.body.wire_bytes
        driver.answer = answer = yield request
        if isinstance(answer, Arrival) and answer.round == shared.table.global_round:
            shared.traffic[node] += answer.body.wire_bytes if isinstance(answer.body, Basket) else 0
    shared.outcomes[node] = driver.result


class _Nobody:
    """No model is trained yet, so nothing is recorded."""

    def record(self, node: int, record: Record, time: float) -> None: ...

    def instant(self, simulator: Simulator) -> bool:
        return True
