"""What one mini-batch can tell: paired comparisons of losses."""

import math

import torch
from torch import Tensor


def excess(losses: Tensor, reference: Tensor, strata: Tensor | None = None) -> Tensor:
    """How far losses [.., sample] lie above a reference, in standard errors of the difference.

    t = mean(d) / (sd(d) / √B) with d the difference on each sample: paired, since both models see
    the same batch, so what makes a sample hard for both falls out.  0 where nothing differs; +inf
    for what is not finite, and with a single sample for whatever is higher.

    `strata`: the class of each sample, where the batch was drawn class by class.  How often each of
    the C classes is seen is no matter of chance then, and sd(d) is that within classes:

        sd² = Σ_i (d_i − mean of d in i's class)² / (B − C).

    (Cochran 1977, "Sampling Techniques", ch. 5.)  Otherwise harm to one class would be its own
    excuse: it spreads d, and t stays below √(B / (C − 1)), however large the harm.
    """
    gaps = (losses - reference).double()
    mean = gaps.mean(-1)
    spread = gaps.std(-1) if gaps.shape[-1] > 1 else torch.zeros_like(mean)
    if strata is not None:
        spread = _within(gaps, strata, spread)
    t = mean / (spread / math.sqrt(gaps.shape[-1]))
    t = torch.where(mean == 0, torch.zeros_like(t), t)
    return torch.where(mean.isfinite(), t, torch.inf)


def _within(gaps: Tensor, strata: Tensor, overall: Tensor) -> Tensor:
    """The spread within classes; over all samples, where no class has two."""
    alike = (strata[:, None] == strata).double()
    shares = alike / alike.sum(0)  # [sample, sample]: of its class's mean
    free = len(strata) - shares.diagonal().sum()  # B − C
    within = ((gaps - gaps @ shares).square().sum(-1) / free).sqrt()
    return torch.where(free > 0.5, within, overall)


def above_the_lowest(
    losses: Tensor, means: Tensor, strata: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The excess of each row over the one with the lowest mean, for which it is 0; and that row."""
    best = torch.arange(len(losses), device=losses.device) == means.argmin()
    lowest = column(best, losses.T)
    return torch.where(best, 0.0, excess(losses, lowest, strata)), lowest


def first(usable: Tensor) -> Tensor:
    """The index of the first True; one past the last if there is none."""
    return torch.where(usable.any(), usable.int().argmax(), len(usable))


def column(mask: Tensor, values: Tensor) -> Tensor:
    """The values in the one column that is meant.  Without a gather, so that it can be compiled."""
    return torch.where(mask, values, 0.0).sum(-1)
