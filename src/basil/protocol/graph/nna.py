"""MoNNA (Farhadkhani et al., 2023): nearest-neighbour averaging with local momentum."""

from basil.protocol.graph.aggregate import nearest_mean
from basil.protocol.graph.graph_round import (
    RoundInput,
    Step,
    among,
    byzantine_tolerated,
    gossip,
    share,
)
from basil.protocol.looks_at import DISTANCES
from basil.protocol.node import Node
from basil.protocol.requests import Protocol
from basil.table import states


@states(looks_at=DISTANCES)
def nna(node: Node, *, discard: int = -1, momentum: float = 0.9) -> Protocol:
    """The mean of one's own and the nearest models, all but the farthest few; local momentum.

    x_i ← mean of x_i and the m − f nearest of m neighbours, then a step along the local momentum.
    `discard` is f; −1: as many as may be Byzantine (b), but fewer than half of the neighbours.

    As in the authors' code (LPD-EPFL/robust-collaborative-learning, aggregators/cva.py: the
    `len(gradients) -f` nearest, oneself among them).  There MoNNA has β = 0.99 and NNA β = 0
    (reproduce.py, `momentums = [0, 0.99]`), with rates of 0.75 and 600 steps.  The default here is
    0.9, as of the other schemes with momentum: 0.99 takes hundreds of rounds to get going.
    """
    byzantine = byzantine_tolerated(node, discard, "discard")
    share(momentum, "momentum")

    def scheme(heard: RoundInput) -> Step:
        keep = len(heard.senders) - among(heard, byzantine)
        mixed = yield from heard.aggregate(
            lambda own, models: nearest_mean(own, models, keep), distances=True
        )
        return (yield from heard.momentum_step(mixed, momentum))

    return gossip(node, scheme)
