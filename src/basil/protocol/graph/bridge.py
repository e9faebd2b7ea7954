"""BRIDGE (Fang, Yang and Bajwa, 2022): robust statistics, coordinate by coordinate."""

from basil.protocol.graph.aggregate import median, trimmed_mean
from basil.protocol.graph.graph_round import RoundInput, Step, among, byzantine_tolerated, gossip
from basil.protocol.looks_at import COORDINATES
from basil.protocol.node import Node
from basil.protocol.requests import Protocol
from basil.table import states


@states(looks_at=COORDINATES)
def bridge(node: Node, *, trim: int = -1) -> Protocol:
    """Per coordinate, a mean without the largest and smallest values (BRIDGE-T).

    x_i ← trimmed mean of {x_i, x_j} − η ∇f_i(x_i): the `trim` largest and smallest values among the
    neighbours are left out, one's own never.  −1: as many as may be Byzantine (b), but fewer than
    half of the neighbours.

    The authors' code (INSPIRE-Lab-US/Byzantine-resilient-distributed-learning: DecLearning.py,
    `neighborhood_w[b : -b]`) sorts one's own value with the others', so that it may go, too; their
    paper never drops it.  b is given there (dec_BRIDGE.py, `-b`), and trained with 0.1/k.
    """
    byzantine = byzantine_tolerated(node, trim, "trim")

    def scheme(heard: RoundInput) -> Step:
        aside = among(heard, byzantine)
        mixed = yield from heard.aggregate(lambda own, models: trimmed_mean(own, models, aside))
        return mixed + (yield from heard.update())

    return gossip(node, scheme)


@states(looks_at=COORDINATES)
def bridge_median(node: Node) -> Protocol:
    """Per coordinate, the median of one's own and the neighbours' values (BRIDGE-M).

    x_i ← median{x_i, x_j} − η ∇f_i(x_i).  As in the authors' code (`np.median` in DecLearning.py).
    """

    def scheme(heard: RoundInput) -> Step:
        mixed = yield from heard.aggregate(median)
        return mixed + (yield from heard.update())

    return gossip(node, scheme)
