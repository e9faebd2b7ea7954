"""What a receiver would make of a lie: its own protocol, run for a part of one round.

A lie that is tried out twenty times on each receiver costs more than all training, if whole models
are combined each time.  So it is tried out on vectors that the receiver's rule treats in the same
way, but are shorter (`shadows`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from basil import rng
from basil.learning.pool import Batch
from basil.protocol.looks_at import COORDINATES, DISTANCES
from basil.protocol.node import Node
from basil.protocol.requests import (
    Arrival,
    Checkpoint,
    Combine,
    Fetch,
    Missing,
    Protocol,
    Receive,
    Send,
)

SAMPLE = 4096  # coordinates


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What colluders know of how their receivers combine models."""

    place: Callable[[int], Node]  # of a receiver
    scheme: Callable[[Node], Protocol]
    looks_at: str  # what the rule sees of models
    seed: int = 0

    def shadows(self, models: Iterable[Tensor]) -> Tensor:
        """Vectors, one a row, that the receivers' rule combines as it does these models.

        It looks at their distances: their coordinates in a basis of the space that they span, so
        that all lengths and distances are the same (and their sums are the sums' coordinates).  It
        looks at coordinates: some of these, the same ones for all, drawn at random.  Else the
        models as they are.
        """
        rows = torch.stack(list(models))
        if self.looks_at == DISTANCES:
            basis: Tensor = torch.linalg.qr(rows.T, mode="r").R
            return basis.T.cpu()
        if self.looks_at == COORDINATES and rows.shape[1] > SAMPLE:
            some = rng.stream(self.seed, "rehearsal").permutation(rows.shape[1])[:SAMPLE]
            return rows[:, torch.from_numpy(np.sort(some)).to(rows.device)].cpu()
        return rows

    def outcome(self, k: int, j: int, own: Tensor, sent: Mapping[int, Tensor]) -> Tensor | None:
        """The average that node j on a graph makes in round k of its own model and those sent.

        None if it makes none, or asks for a loss first: nobody else knows its samples.
        """
        place = replace(
            self.place(j), initial_model=own, rejoin_round=k, state=None, draw=_no_samples
        )
        mail = [Arrival(sender, k, body, 0.0) for sender, body in sent.items()]
        protocol = self.scheme(place)
        request = next(protocol)
        answer: Any = None
        made: Any = None
        while True:
            match request:
                case Receive():
                    answer = mail.pop(0) if mail else Missing(request.until)
                case Combine():
                    answer = made = request.answer()
                case Send() | Checkpoint() | Fetch():
                    answer = 0.0
                case _:  # it trains, or scores
                    return made if isinstance(made, Tensor) and made.shape == own.shape else None
            request = protocol.send(answer)


def _no_samples(k: int) -> tuple[Batch, ...]:
    return (Batch(np.zeros(0, np.int64)),)
