"""BALANCE (Fang et al., CCS 2024): accept who is near enough, ever nearer as time goes on."""

import math

from torch import Tensor

from basil.errors import UserError
from basil.protocol.graph.aggregate import mean_within
from basil.protocol.graph.graph_round import RoundInput, Step, gossip, share
from basil.protocol.node import Node
from basil.protocol.requests import Protocol


def balance(node: Node, *, gamma: float = 0.3, kappa: float = 1.0, alpha: float = 0.5) -> Protocol:
    """Mix with the neighbours within a distance that shrinks from round to round.

    Accept x_j if ‖x_i − x_j‖ ≤ γ exp(−κ k/K) ‖x_i‖; x_i ← α x_i + (1 − α) mean of the accepted
    (one's own if there is none), then eq. (2) from there.
    """
    share(alpha, "alpha")
    for name, value in (("gamma", gamma), ("kappa", kappa)):
        if value < 0:
            raise UserError(f"scheme.{name} = {value}: it must be 0 or more")

    def scheme(heard: RoundInput) -> Step:
        fraction = gamma * math.exp(-kappa * heard.round / node.rounds)

        def rule(own: Tensor, models: Tensor) -> Tensor:
            return alpha * own + (1 - alpha) * mean_within(own, models, fraction * own.norm())

        mixed = yield from heard.aggregate(rule, distances=True)
        return (yield from heard.train(mixed))

    return gossip(node, scheme)
