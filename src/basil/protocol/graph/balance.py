"""BALANCE (Fang et al., CCS 2024): accept who is near enough, ever nearer as time goes on."""

import math

from torch import Tensor

from basil.protocol.graph.aggregate import mean_within
from basil.protocol.graph.graph_round import RoundInput, Step, gossip, share
from basil.protocol.looks_at import DISTANCES
from basil.protocol.node import Node
from basil.protocol.requests import Protocol
from basil.protocol.rules.freshest import non_negative
from basil.table import states


@states(looks_at=DISTANCES)
def balance(node: Node, *, gamma: float = 0.3, kappa: float = 1.0, alpha: float = 0.5) -> Protocol:
    """Mix with the neighbours within a distance that shrinks from round to round.

    Accept x_j if ‖x_i − x_j‖ ≤ γ exp(−κ k/K) ‖x_i‖; x_i ← α x_i + (1 − α) mean of the accepted
    (one's own if there is none), then eq. (2) from there.

    The authors' code was not found.  α = 0.5 and κ = 1 are also what others have who implement it;
    γ is 0.3 in Nebula (`balance_gamma`), and 2 in the code of SketchGuard's authors, which accepts
    at least the nearest neighbour (murtazahr/Sketchguard, murmura/aggregation/balance.py).
    """
    share(alpha, "alpha")
    non_negative(gamma, "gamma")
    non_negative(kappa, "kappa")

    def scheme(heard: RoundInput) -> Step:
        fraction = gamma * math.exp(-kappa * heard.round / node.rounds)

        def rule(own: Tensor, models: Tensor) -> Tensor:
            return alpha * own + (1 - alpha) * mean_within(own, models, fraction * own.norm())

        mixed = yield from heard.aggregate(rule, distances=True)
        return (yield from heard.train(mixed))

    return gossip(node, scheme)
