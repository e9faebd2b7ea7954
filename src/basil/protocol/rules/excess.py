"""What one mini-batch can tell: paired comparisons of losses."""

import math

import torch
from torch import Tensor


def excess(losses: Tensor, reference: Tensor) -> Tensor:
    """How far losses [.., sample] lie above a reference, in standard errors of the difference.

    t = mean(d) / (sd(d) / √B) with d the difference on each sample: paired, since both models see
    the same batch, so what makes a sample hard for both falls out.  0 where nothing differs; +inf
    for what is not finite, and with a single sample for whatever is higher.
    """
    gaps = (losses - reference).double()
    mean = gaps.mean(-1)
    spread = gaps.std(-1) if gaps.shape[-1] > 1 else torch.zeros_like(mean)
    t = mean / (spread / math.sqrt(gaps.shape[-1]))
    t = torch.where(mean == 0, torch.zeros_like(t), t)
    return torch.where(mean.isfinite(), t, torch.inf)


def above_the_lowest(losses: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """The excess of each row over the one with the lowest mean, for which it is 0; and that row."""
    best = torch.arange(len(losses), device=losses.device) == means.argmin()
    lowest = column(best, losses.T)
    return torch.where(best, 0.0, excess(losses, lowest)), lowest


def first(usable: Tensor) -> Tensor:
    """The index of the first True; one past the last if there is none."""
    return torch.where(usable.any(), usable.int().argmax(), len(usable))


def column(mask: Tensor, values: Tensor) -> Tensor:
    """The values in the one column that is meant.  Without a gather, so that it can be compiled."""
    return torch.where(mask, values, 0.0).sum(-1)
