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
from basil.attack.sharing import FAULTS, meddler
from basil.data import Dataset
from basil.data.sensitive import SENSITIVE
from basil.engine.process import Absence, Work
from basil.engine.simulate import Simulator
from basil.engine.timing import Timing
from basil.errors import UserError
from basil.experiment.cast import Cast
from basil.experiment.options import options_of
from basil.learning.compute import Compute
from basil.protocol import anonymity
from basil.protocol.acds import Outcome, Sharer, acds
from basil.protocol.basket import Basket
from basil.protocol.requests import Arrival, Protocol, Record, Request, Send
from basil.protocol.timetable import Timetable
from basil.recipe import Recipe
from basil.record.run_folder import write_json
from basil.topology import divide

LABEL_BYTES = 1  # of up to 256 classes; otherwise a label takes four
SHARING, ANONYMITY = "sharing.json", "anonymity.csv"


@dataclass
class Shared:
    """What came of it."""

    table: Timetable
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    traffic: Counter[int] = field(default_factory=Counter)  # node -> bytes as Prop. 3 counts them
    work: Work = field(default_factory=Work)

    @property
    def seconds(self) -> float:
        return max(outcome.time for outcome in self.outcomes.values())

    def received(self) -> dict[int, NDArray[np.int64]]:
        return {node: outcome.received.rows for node, outcome in self.outcomes.items()}

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
        }

    def write(self, folder: Path) -> None:
        """Who got how much, what went wrong, and how many may have owned what was received."""
        rows = self.anonymity()
        owners: Counter[int] = Counter()
        for row in rows:
            owners[row.candidates_if_dummies_known] += row.samples
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
                "samples_by_possible_owners": {str(k): owners[k] for k in sorted(owners)},
                "nodes": nodes,
            },
        )
        names = [f.name for f in fields(anonymity.Row)]
        lines = [",".join(names)]
        lines += [",".join(str(getattr(row, name)) for name in names) for row in rows]
        (folder / ANONYMITY).write_text("\n".join(lines) + "\n", encoding="utf-8")


def bits_of_a_sample(data: Dataset) -> int:
    """x as it is stored, and its label."""
    label = LABEL_BYTES if 0 < data.classes <= 256 else 4
    return 8 * (int(data.train.x[:1].nbytes) + label)


def share(recipe: Recipe, cast: Cast, data: Dataset, compute: Compute, timing: Timing) -> Shared:
    """Let all nodes share, on a virtual clock that starts at 0."""
    part, bits = recipe.sharing, bits_of_a_sample(data)
    sensitive = SENSITIVE[part.sensitive](data.train, **options_of(part, SENSITIVE, "sensitive"))
    table = timetable(
        recipe, cast, len(data.train), lambda samples: timing.link(ceil(samples * bits / 8))
    )
    shared = Shared(table)

    def sharer(node: int, now: float) -> Sharer:
        stream = rng.stream(recipe.seed, "node", node, "sharing")
        own = cast.poisoned.get(node, cast.local[node])  # in the same order
        return Sharer(
            id=node,
            table=table,
            samples=Basket(own[~sensitive[cast.local[node]]], bits),
            dummies=lambda k: Basket(stream.choice(cast.dummies, k), bits),
            is_sample=lambda basket: (basket.rows >= 0) & (basket.rows < len(cast.train)),
            is_dummy=lambda basket: np.isin(basket.rows, cast.dummies) & (part.dummies == "noise"),
            stream=stream,
            start=now,
        )

    def start(node: int, now: float, state: dict[str, Any] | None, rejoin: int | None) -> Protocol:
        fault = part.fault if node in cast.byzantine else "none"
        protocol = meddler(acds(sharer(node, now)), FAULTS[fault], part.fault_round)
        return _metered(node, protocol, shared)

    away = tuple(Absence(e.node, 1, None) for e in cast.events if e.leaves == 1)
    nodes = dict.fromkeys(cast.members, False)
    simulator = Simulator(nodes, start, compute, timing, _Nobody(), away)
    simulator.run()
    shared.work = simulator.done
    return shared


def timetable(recipe: Recipe, cast: Cast, samples: int, hop: Callable[[int], float]) -> Timetable:
    """When each basket is due, for nodes that hold so many samples together."""
    part = recipe.sharing
    return Timetable(
        divide(cast.ring.order, part.groups),
        part.batches,
        batch_size(recipe, samples),
        hop,
        max(1.0, recipe.time.patience),
        part.opening,
    )


def batch_size(recipe: Recipe, samples: int) -> int:
    """M = αD/H, with the D of a fair share: one number for all, so that no size tells an owner."""
    alpha, H, N = recipe.sharing.alpha, recipe.sharing.batches, recipe.ring.nodes
    size = int(alpha * (samples // N) / H + 1e-9)
    if size < 1:
        raise UserError(
            f"sharing.alpha = {alpha}: of {samples // N} samples that is less than one for each of"
            f" {H} batches; set sharing.batches to {int(alpha * (samples // N))} or raise alpha"
        )
    return size


def _metered(node: int, protocol: Generator[Request, Any, Outcome], shared: Shared) -> Protocol:
    """Keep the outcome; count what a node sends (a multicast once) and hears from other groups."""
    answer: Any = None
    while True:
        try:
            request = protocol.send(answer)
        except StopIteration as end:
            shared.outcomes[node] = end.value
            return
        if isinstance(request, Send) and isinstance(request.body, Basket) and request.to:
            shared.traffic[node] += request.body.wire_bytes
        answer = yield request
        if isinstance(answer, Arrival) and answer.round == shared.table.global_round:
            shared.traffic[node] += answer.body.wire_bytes if isinstance(answer.body, Basket) else 0


class _Nobody:
    """No model is trained yet, so nothing is recorded."""

    def record(self, node: int, record: Record, time: float) -> None: ...

    def instant(self, simulator: Simulator) -> bool:
        return True
