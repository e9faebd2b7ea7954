"""What a node shows of its work: a mean of models, where that has the lower loss."""

from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor

from basil.learning.promises import means_of
from basil.protocol.requests import Combine, Request, Score
from basil.protocol.rules.contract import Candidates
from basil.protocol.rules.excess import above_the_lowest

Z = 2.0  # standard errors above the lowest loss that one batch cannot tell from it


def averaged(candidates: Candidates, model: Tensor) -> Generator[Request, Any, Tensor]:
    """The mean of one's new model and the stored ones near the lowest loss, or the model itself.

        y = (x + Σ x_j) / (1 + n)   over the n stored models with t(j, *) ≤ 2 (`excess`),

    if its loss is lower on the batch that the stored ones were judged on.  A turn leaves a model
    leaning towards the samples of its node, the turns of others towards theirs: the mean leans less
    (Polyak and Juditsky 1992, "Acceleration of stochastic approximation by averaging").  Nobody
    goes on from it: half of the turns of S nodes are missing there.
    """
    args = candidates.losses, model, candidates.models
    mean: Tensor = yield Combine(_mean_of_near, averages=1, args=args)
    own = yield Score(model, candidates.batch)
    its = yield Score(mean, candidates.batch)
    shown: Tensor = yield Combine(_lower, args=(model, mean, own, its))
    return shown


def _mean_of_near(losses: Tensor, model: Tensor, stored: Tensor) -> Tensor:
    above, _ = above_the_lowest(losses, means_of(losses))
    near = above <= Z
    kept = torch.where(near[:, None], stored, 0.0)  # not times 0: one may not be finite
    return (model + kept.sum(0)) / (1 + near.sum())


def _lower(model: Tensor, mean: Tensor, own: Tensor, its: Tensor) -> Tensor:
    return torch.where(its.mean() < own.mean(), mean, model)
