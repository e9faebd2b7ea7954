"""What the simulator knows of a node, besides the node's own protocol."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from basil.learning.compute import Compute
from basil.protocol.numbering import RING
from basil.protocol.requests import (
    Arrival,
    Combine,
    Fetch,
    Protocol,
    Receive,
    Score,
    ScoreAll,
    Select,
    Train,
)


@dataclass(frozen=True)
class Absence:
    """A node that is away: it misses the rounds leaves, …, returns − 1 (App. C).

    It leaves before this stage of the first of them.
    """

    node: int
    leaves: int
    returns: int | None
    stage: str = RING


@dataclass(slots=True)
class Work:
    """What was done."""

    messages: int = 0
    bytes: int = 0
    evaluations: int = 0
    steps: int = 0
    distances: int = 0

    def add(self, other: "Work") -> None:
        self.messages += other.messages
        self.bytes += other.bytes
        self.evaluations += other.evaluations
        self.steps += other.steps
        self.distances += other.distances


def compute_now(
    compute: Compute, request: Score | ScoreAll | Train | Select | Combine | Fetch, done: Work
) -> Any:
    """The answer to one node's request for work, which is counted."""
    match request:
        case Score():
            done.evaluations += 1
            return compute.score(request.model, [request.batch])[0]
        case ScoreAll():
            done.evaluations += len(request.models)
            return compute.score_all(request.models, request.batch)
        case Train():
            done.steps += len(request.batches)
            return compute.train_together([request])[0]
        case Select():
            return compute.select(request.models, request.losses, request.own, request.pick)
        case Fetch():  # a peer has been sent the model itself
            return None
        case Combine():
            done.distances += request.distances
            made = compute.combine(request.work, request.args)
            return compute.admit(made) if request.makes_model else made


@dataclass(eq=False, slots=True)
class Process:
    """A node in the simulator."""

    node: int
    protocol: Protocol | None  # None: the node is away, or has finished
    inbox: deque[Arrival] = field(default_factory=deque)
    receive: Receive | None = None  # the Receive that it waits in
    alarm: float = math.inf  # when its deadline will next be looked at
    # What is needed to start it again: its checkpoint, and what has arrived since.
    state: Callable[[], dict[str, Any]] | None = None
    since: float = 0.0
    log: list[Arrival] = field(default_factory=list)
    done: Work = field(default_factory=Work)  # since the checkpoint
    away: bool = False
    link_free: float = 0.0  # when its incoming link has taken in all that is on its way
