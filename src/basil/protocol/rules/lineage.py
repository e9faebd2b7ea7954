"""Which stored models go back to which, and how many turns are in them, as far as one can see."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

LINE = 512
PIECE = 8192  # coordinates: of ten models, what a core keeps at hand


class Length(NamedTuple):
    """Of a turn, or of several."""

    norm: Tensor
    peak: Tensor  # the most by which it changes a coordinate


def lineage(
    models: Tensor | Sequence[Tensor], origin: Tensor, turn: Length, ratio: float
) -> Tensor:
    """How many turns are in each of S models, nearest predecessor's first.

    Model j goes back to the older one that is nearest to it, if no more than `ratio` usual turns
    lie between them, by their norm and by their largest coordinate.  Then it has one turn more; or
    as many, if the two are nearer than 1/ratio of a turn, since then nobody has worked on it.  A
    model that goes back to no stored one counts no turns.

    models: the rows of a matrix, for a GPU; or each by itself, for a CPU.
    origin: a model near these: the nearer, the less is lost to rounding.  It only tells which one
    is nearest; how far that is, their difference tells.
    """
    if isinstance(models, Tensor):
        products, steps_from = _products(models, origin), partial(_steps, models)
    else:
        products, steps_from = _products_of_rows(models, origin), partial(_steps_of_rows, models)
    squares = products.diagonal()
    apart = squares[:, None] + squares - 2 * products
    rows = torch.arange(len(models), device=origin.device)
    older = rows > rows[:, None]
    distance, nearest = torch.where(older & apart.isfinite(), apart, torch.inf).min(1)
    step = steps_from(nearest)
    short = (step.norm <= ratio * turn.norm) & (step.peak <= ratio * turn.peak)
    related = short & distance.isfinite()
    worked = (related & (step.norm >= turn.norm / ratio)).double()
    parent = ((rows == nearest[:, None]) & related[:, None]).double()
    # Σ parentⁿ worked, the sum over all ancestors: (1 + P)(1 + P²)(1 + P⁴)…
    turns: Tensor = worked + parent @ worked
    power = parent
    for _ in range((len(models) - 1).bit_length() - 1):
        power = power @ power
        turns = turns + power @ turns
    return turns


def _products(models: Tensor, origin: Tensor) -> Tensor:
    """(models − origin)(models − origin)ᵀ.

    In double precision, so that a turn is seen however far the origin is.  A GPU sums few long
    rows faster line by line, all lines at once.
    """
    models = (models - origin).double()
    lines = pad(models, (0, -models.shape[1] % LINE)).unflatten(1, (-1, LINE)).transpose(0, 1)
    products: Tensor = (lines @ lines.mT).sum(0)
    return products


def _steps(models: Tensor, start: Tensor) -> Length:
    """From models[start] to models."""
    gaps = models[start] - models
    return Length(gaps.square().sum(1).sqrt(), gaps.abs().amax(1))


@np.errstate(all="ignore")  # what is not finite is nobody's kin
def _products_of_rows(models: Sequence[Tensor], origin: Tensor) -> Tensor:
    """The same on a CPU, whose time goes into bringing models from memory: each is read once.

    In single precision: enough up to an origin a thousand turns away.  By numpy, which starts a
    short operation sooner and makes use of the product's symmetry.
    """
    arrays, middle = [model.numpy() for model in models], origin.numpy()
    shifted = np.empty((len(arrays), PIECE), np.float32)
    products = np.zeros((len(arrays), len(arrays)))
    for begin in range(0, len(middle), PIECE):
        piece = slice(begin, begin + PIECE)
        shift = shifted[:, : len(middle[piece])]
        for row, array in zip(shift, arrays, strict=True):
            np.subtract(array[piece], middle[piece], out=row)
        products += shift @ shift.T
    return torch.from_numpy(products)


def _steps_of_rows(models: Sequence[Tensor], start: Tensor) -> Length:
    squares, peaks = list[Tensor](), list[Tensor]()
    for model, begin in zip(models, start.tolist(), strict=True):
        gap = models[begin] - model
        squares.append(gap @ gap)
        peaks.append(gap.abs_().amax())
    return Length(torch.stack(squares).sqrt(), torch.stack(peaks))
