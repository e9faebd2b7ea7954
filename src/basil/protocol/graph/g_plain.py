"""G-plain (§VI-A): the graph without a defence."""

from basil.protocol.graph.aggregate import weighted_mean
from basil.protocol.graph.graph_round import RoundInput, Step, gossip
from basil.protocol.looks_at import DISTANCES
from basil.protocol.node import Node
from basil.protocol.requests import Protocol
from basil.table import states


@states(looks_at=DISTANCES)
def g_plain(node: Node) -> Protocol:
    """Average one's model with the neighbours', then train: the graph without a defence (§VI-A).

    x_i ← Σ_j W_ij x_j, then eq. (2) from there.  With `graph.weights = "uniform"` this is the
    paper's mean.  One neighbour that sends NaN breaks it, and through it everybody.
    """

    def scheme(heard: RoundInput) -> Step:
        mixed = yield from heard.aggregate(
            lambda own, models: weighted_mean(own, models, heard.weights)
        )
        return (yield from heard.train(mixed))

    return gossip(node, scheme)
