"""What one node knows when its protocol starts: its work, and its place among the others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from basil.learning.pool import Batch
from basil.protocol.rules import Rule
from basil.topology import Graph, Grouping, Ring

NO_GRAPH = Graph(())


@dataclass(frozen=True, eq=False)
class RingPlace:
    """What a node on a ring needs: who comes before and after it, and how it selects."""

    ring: Ring
    connectivity: int  # S: how many models are stored
    reach: int  # to how many successors a model is sent: S + d (Appendix C)
    rule: Rule | None  # None: the nearest predecessor's model, whatever it is
    score_on_arrival: bool = True
    descent: bool = False  # is a step that raises the loss not taken?
    extrapolate: float = 0.0  # by so many mean turns of the last lap


@dataclass(frozen=True, eq=False)
class GroupPlace:
    """What a node on one of several rings needs besides."""

    grouping: Grouping | None = None
    laps: int = 1  # τ: rounds of each ring in a global round
    hop_patience: float = 0.0  # seconds that a hop from group to group may take
    # Are averages judged by what they become?  In the paper, by what goes into them.
    by_outcome: bool = False


@dataclass(frozen=True, eq=False)
class GraphPlace:
    """What a node on a graph needs."""

    neighbours: tuple[int, ...] = ()
    weights: Mapping[int, float] = field(default_factory=dict)  # W_ij; the rest is W_ii
    byzantine: int = 0  # b: how many Byzantine nodes there may be among all
    graph: Graph = NO_GRAPH  # who is connected to whom is no secret
    # What is done to models before they are combined: from this node to a function of what it heard
    mixing: Callable[["Node"], Any] | None = None


@dataclass(frozen=True, eq=False)
class Node:
    """One participant, as its own protocol sees it."""

    id: int
    rounds: int  # K; of several rings, global rounds
    initial_model: Tensor  # x⁰
    # Of several rings, these are by the round of a ring, and the rate by the global round:
    draw: Callable[[int], tuple[Batch, ...]]  # the batches of round k, private to the node
    rate: Callable[[int], float]  # learning rate of round k
    key: Callable[[int], int]  # seed of what is random inside the network in round k
    patience: float  # seconds that a turn may take before the next node goes on without it
    on_ring: RingPlace
    on_rings: GroupPlace = GroupPlace()
    on_graph: GraphPlace = GraphPlace()
    # On what models are judged in round k, whose batches these are: the paper's way is the first.
    judge: Callable[[int, tuple[Batch, ...]], Batch] = lambda k, batches: batches[0]
    averages: Callable[[int], bool] = lambda k: False  # is a mean shown in round k?
    seed: int = 0  # the run's: for what nodes draw that all of them know
    start: float = 0.0  # the time at which this node starts (again)
    state: dict[str, Any] | None = None  # its last checkpoint, if it starts again
    rejoin_round: int | None = None  # it was away: the first round in which it takes part again

    @property
    def lap(self) -> int:
        """Turns from one of this node's to its next: the size of its ring."""
        grouping = self.on_rings.grouping
        return len(grouping.ring_of(self.id) if grouping else self.on_ring.ring)
