"""IOS (Wu, Chen and Ling, IEEE TSP 2023): iterative outlier scissor."""

import torch
from torch import Tensor

from basil.protocol.graph.aggregate import finite_or_own, sound
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
def ios(node: Node, *, discard: int = -1, momentum: float = 0.9) -> Protocol:
    """Again and again without the model that is farthest from the mean of those that are left.

    `discard` times: y is the mean of oneself and the remaining neighbours with weights W_ij, and
    the neighbour with the largest ‖x_j − y‖ goes.  x_i ← that mean of the rest, then a step along
    the local momentum.  W is `graph.weights`.  −1: as many as may be Byzantine (b), but fewer than
    half of the neighbours.  The formula is that of renaudgaucher/Byzantine-Robust-Gossip,
    aggregators/ios.py; the authors' own code was not found.
    """
    byzantine = byzantine_tolerated(node, discard, "discard")
    share(momentum, "momentum")

    def scheme(heard: RoundInput) -> Step:
        weights, rounds = heard.weights, among(heard, byzantine)
        mixed = yield from heard.aggregate(
            lambda own, models: scissored_mean(own, models, weights, rounds), distances=rounds
        )
        return (yield from heard.momentum_step(mixed, momentum))

    return gossip(node, scheme)


def scissored_mean(own: Tensor, models: Tensor, weights: Tensor, discard: int) -> Tensor:
    """The weighted mean of oneself and those neighbours that are left.

    In float64: a lie of 3·10³⁸ is part of the first means, and its square would be infinite.
    """
    # What is not finite is the farthest of all, and is never part of a mean.
    garbage = models.mul(0).sum(1) != 0
    models, weights = finite_or_own(own, models).double(), weights.double()
    own_weight, left = 1 - weights.sum(), torch.ones_like(garbage)

    def mean() -> Tensor:
        used = torch.where(left, weights, 0.0)
        return (own_weight * own + used @ models) / (own_weight + used.sum())

    for _ in range(discard):
        apart = torch.linalg.vector_norm(models - mean(), dim=1)
        apart = torch.where(garbage, torch.inf, apart)
        farthest = torch.where(left, apart, -1.0).argmax()
        left = left & (torch.arange(len(left), device=left.device) != farthest)
    return sound(own, mean().to(own))
