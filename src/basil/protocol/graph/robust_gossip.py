"""CS₊ and GTS (Gaucher, Dieuleveut and Hendrikx, ICML 2025, arXiv 2410.10418): robust gossip.

F-RG: x_i ← x_i − η F((x_i − x_j)_j), with a robust sum F in the place of Σ_j W_ij (x_i − x_j).
With F as in He et al. it is ClippedGossip; with GTS and equal weights, almost NNA.

The formulas are those of the authors' code (renaudgaucher/Byzantine-Robust-Gossip,
aggregators/robust_gossip.py), but for one: of the model at the edge of what it sets aside, `gts`
there keeps the part that is to go (`rest_weight`), and none of it where there is no such part.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from basil.errors import UserError
from basil.protocol.graph.aggregate import clipped, distances, finite_or_own, sound
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

ROUNDING = 1e-9  # of sums of weights
RobustSum: TypeAlias = Callable[[Tensor, Tensor, Tensor, int, float], Tensor]


@states(looks_at=DISTANCES)
def cs_plus(
    node: Node, *, step: float = 1.0, byzantine: int = -1, momentum: float = 0.9
) -> Protocol:
    """Gossip with the farthest 2b neighbours clipped to the distance of the next one (CS₊-RG).

    x_i ← x_i + η Σ_j W_ij clip(x_j − x_i, τ) with τ the largest distance for which those within it
    have a weight of at most 1 − 2b; then a step along the local momentum.  W is `graph.weights`, b
    the weight of the `byzantine` heaviest neighbours (−1: as many as may be Byzantine, but fewer
    than half), η = `step`.  The authors' η is 1 / the largest eigenvalue of the weighted Laplacian
    of the honest nodes, about 1 with their weights; their β is 0.99 (reproduce_cifar.py) or 0.9
    (reproduce_mnist0.py).
    """
    return _robust_gossip(node, clipped_sum, step, byzantine, momentum)


@states(looks_at=DISTANCES)
def gts(node: Node, *, step: float = 1.0, byzantine: int = -1, momentum: float = 0.9) -> Protocol:
    """Gossip without the farthest b neighbours: geometric trimming (GTS-RG).

    x_i ← x_i + η Σ_j V_ij (x_j − x_i), then a step along the local momentum.  V is W less a weight
    of b, taken from the farthest neighbours.  Options as of `cs+`.
    """
    return _robust_gossip(node, trimmed_sum, step, byzantine, momentum)


def _robust_gossip(
    node: Node, rule: RobustSum, step: float, byzantine: int, momentum: float
) -> Protocol:
    share(momentum, "momentum")
    if not step > 0:
        raise UserError(f"scheme.step = {step}: it must be more than 0")
    tolerated = byzantine_tolerated(node, byzantine, "byzantine")

    def scheme(heard: RoundInput) -> Step:
        weights, aside = heard.weights, among(heard, tolerated)
        mixed = yield from heard.aggregate(
            lambda own, models: rule(own, models, weights, aside, step), distances=True
        )
        return (yield from heard.momentum_step(mixed, momentum))

    return gossip(node, scheme)


def clipped_sum(
    own: Tensor, models: Tensor, weights: Tensor, byzantine: int, step: float
) -> Tensor:
    """x_i + η Σ_j W_ij clip(x_j − x_i, τ)."""
    apart = distances(own, models)
    order = apart.argsort(stable=True)
    within = weights[order].double().cumsum(0)
    room = within[-1] - 2 * _heaviest(weights, byzantine) + ROUNDING
    radius = torch.where(within <= room, apart[order], 0.0).max()
    return clipped(own, models, step * weights, radius)


def trimmed_sum(
    own: Tensor, models: Tensor, weights: Tensor, byzantine: int, step: float
) -> Tensor:
    """x_i + η Σ_j V_ij (x_j − x_i)."""
    order = distances(own, models).argsort(stable=True)
    ordered = weights[order].double()
    before = ordered.cumsum(0) - ordered
    room = ordered.sum() - _heaviest(weights, byzantine)
    kept = torch.minimum((room - before).clamp(min=0), ordered).to(own)
    kept = torch.where(kept > ROUNDING, kept, 0.0)
    moved = (finite_or_own(own, models)[order] - own) * kept[:, None]
    return sound(own, own + step * moved.sum(0))


def _heaviest(weights: Tensor, count: int) -> Tensor:
    """The weight that so many neighbours can have."""
    return weights.double().sort(descending=True).values[:count].sum()
