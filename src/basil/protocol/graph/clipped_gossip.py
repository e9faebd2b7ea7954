"""ClippedGossip (He, Karimireddy and Jaggi, 2022): nobody moves a node by more than a radius."""

from torch import Tensor

from basil.errors import UserError
from basil.protocol.graph.aggregate import benign_radius, clipped, distances
from basil.protocol.graph.graph_round import RoundInput, Step, byzantine_tolerated, gossip, share
from basil.protocol.looks_at import DISTANCES
from basil.protocol.node import Node
from basil.protocol.requests import Protocol
from basil.table import states


@states(looks_at=DISTANCES)
def clipped_gossip(node: Node, *, radius: float = 0.0, momentum: float = 0.9) -> Protocol:
    """Move towards each neighbour, by no more than a radius.

    x_i ← x_i + Σ_j W_ij clip(x_j − x_i, τ), then a step along the local momentum.  W is
    `graph.weights`.  `radius` is τ; 0: from the distances to those neighbours that remain without
    the b farthest (fewer than half), as in the formula of the paper's theory with these for the
    benign ones.
    """
    share(momentum, "momentum")
    if radius < 0:
        raise UserError(f"scheme.radius = {radius}: it must be more than 0, or 0 for its estimate")
    byzantine = byzantine_tolerated(node, -1, "radius")

    def scheme(heard: RoundInput) -> Step:
        weights = heard.weights

        def rule(own: Tensor, models: Tensor) -> Tensor:
            farthest = min(byzantine, len(models))
            tau = radius or benign_radius(distances(own, models), weights, farthest)
            return clipped(own, models, weights, tau)

        mixed = yield from heard.aggregate(rule, distances=True)
        return (yield from heard.momentum_step(mixed, momentum))

    return gossip(node, scheme)
