"""Aggregation rules of the graph-based schemes: one model from one's own and the neighbours'.

Pure functions of `own` [d] and `models` [m, d], m ≥ 1, in tensor operations alone: on a GPU nobody
waits for a value.  Robust rules never use a model that holds a value that is not finite; the
weighted mean does, since it is meant to have no defence.
"""

import numpy as np
import torch
from torch import Tensor


def distances(own: Tensor, models: Tensor) -> Tensor:
    """‖x_j − x_i‖ for each neighbour; +inf if it holds a value that is not finite."""
    norms: Tensor = torch.linalg.vector_norm(models - own, dim=1)
    return norms.nan_to_num(nan=torch.inf, posinf=torch.inf)


def finite_or_own(own: Tensor, models: Tensor) -> Tensor:
    """The models, one's own in the place of each that holds a value that is not finite.

    Such a neighbour then says nothing that the node did not know.  Leaving it out would need its
    number, for which a GPU would have to be waited for.
    """
    # 0 · x is 0 for finite x only: several times faster on a CPU than to ask each number.
    finite = models.mul(0).sum(1, keepdim=True) == 0
    return torch.where(finite, models, own)


def ascending(models: Tensor) -> Tensor:
    """Each coordinate's values in order."""
    if models.device.type == "cpu":  # ten times as fast there as torch's own
        return torch.from_numpy(np.sort(models.numpy(), axis=0))
    return models.sort(dim=0).values


def sound(own: Tensor, result: Tensor) -> Tensor:
    """The result, or one's own model where finite but huge values have made it overflow."""
    return torch.where(result.isfinite().all(), result, own)


def weighted_mean(own: Tensor, models: Tensor, weights: Tensor) -> Tensor:
    """W_ii x_i + Σ_j W_ij x_j with W_ii = 1 − Σ_j W_ij: no defence (g-plain, §VI-A)."""
    return (1 - weights.sum()) * own + weights @ models


def trimmed_mean(own: Tensor, models: Tensor, trim: int) -> Tensor:
    """Per coordinate: the neighbours without the `trim` largest and smallest, and oneself.

    y_k = (Σ_{j ∈ C_k} [x_j]_k + [x_i]_k) / (m − 2·trim + 1), BRIDGE-T (Fang, Yang and Bajwa, 2022).
    """
    kept = ascending(finite_or_own(own, models))[trim : len(models) - trim]
    return sound(own, (kept.sum(0) + own) / (len(kept) + 1))


def median(own: Tensor, models: Tensor) -> Tensor:
    """Per coordinate: the median of the neighbours and oneself (BRIDGE-M).

    Of an even number, the mean of the two in the middle.
    """
    ordered = ascending(torch.cat([finite_or_own(own, models), own[None]]))
    m = len(ordered)
    return sound(own, (ordered[(m - 1) // 2] + ordered[m // 2]) / 2)


def clipped(own: Tensor, models: Tensor, weights: Tensor, radius: Tensor | float) -> Tensor:
    """x_i + Σ_j W_ij (x_j − x_i) min(1, τ/‖x_j − x_i‖) (He, Karimireddy and Jaggi, 2022)."""
    apart = distances(own, models)
    factor = torch.where(apart > radius, radius / apart, torch.ones_like(apart))
    moved = (finite_or_own(own, models) - own) * (weights * factor)[:, None]
    return sound(own, own + moved.sum(0))


def benign_radius(apart: Tensor, weights: Tensor, byzantine: int) -> Tensor:
    """τ² = Σ_{j ∈ S} W_ij ‖x_j − x_i‖² / δ, S without the `byzantine` farthest neighbours.

    The theory's radius has the benign neighbours in the place of S and their Byzantine weight δ,
    neither of which a node knows.  It takes the farthest for Byzantine, and δ for their weight.
    Without any nothing is clipped.
    """
    if byzantine == 0:
        return torch.full_like(apart[0], torch.inf)
    order = apart.argsort(stable=True)
    near, far = order[: len(order) - byzantine], order[len(order) - byzantine :]
    # A distance that is not finite, among the nearest, would make the radius infinite.
    spread = torch.where(apart.isfinite(), apart, torch.zeros_like(apart)).square()
    return ((weights[near] * spread[near]).sum() / weights[far].sum()).sqrt()


def nearest_mean(own: Tensor, models: Tensor, keep: int) -> Tensor:
    """The mean of oneself and the `keep` nearest neighbours: NNA (Farhadkhani et al., 2023)."""
    nearest = distances(own, models).argsort(stable=True)[:keep]
    kept = finite_or_own(own, models)[nearest]
    return sound(own, (kept.sum(0) + own) / (keep + 1))


def mean_within(own: Tensor, models: Tensor, radius: Tensor) -> Tensor:
    """The mean of the neighbours within this distance; oneself, if there is none (BALANCE)."""
    near = distances(own, models) <= radius
    total = torch.where(near[:, None], finite_or_own(own, models), 0.0).sum(0)
    return sound(own, torch.where(near.any(), total / near.sum(), own))


def mean_of_better(own: Tensor, models: Tensor, losses: Tensor, own_loss: Tensor) -> Tensor:
    """UBAR's second stage, R_UBAR of App. G.

    The mean of the models whose loss is at most one's own; if there is none, the one with the
    lowest loss.  A loss that is not finite is never low.
    """
    usable = losses.isfinite()
    better = usable & (losses <= own_loss)
    lowest = losses.where(usable, torch.inf).argmin()
    alone = torch.arange(len(losses), device=losses.device) == lowest
    used = torch.where(better.any(), better, alone & usable)
    total = torch.where(used[:, None], models, 0.0).sum(0)
    return sound(own, total / used.sum())  # where nobody is of use: 0 / 0
