"""Which stored models go back to which, and how many turns are in them, as far as one can see."""

from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

LINE = 512
PIECE = 8192  # coordinates: of ten models, what a core keeps at hand


class Length(NamedTuple):
    """Of a usual turn."""

    norm: Tensor
    peak: Tensor  # the most by which it changes a coordinate


def lineage(models: Tensor, origin: Tensor, turn: Length, ratio: float) -> Tensor:
    """How many turns are in each of models [S, d], nearest predecessor's first.

    Model j goes back to the older one that is nearest to it, if no more than `ratio` usual turns
    lie between them, by their norm and by their largest coordinate.  Then it has one turn more; or
    as many, if the two are nearer than 1/ratio of a turn, since then nobody has worked on it.  A
    model that goes back to no stored one counts no turns.

    origin: a model near these: the nearer, the less is lost to rounding.
    """
    size = models.shape[1] if models.is_cuda else PIECE
    pieces = models.split(size, 1)
    products = reduce(torch.add, map(_products, pieces, origin.split(size)))
    squares = products.diagonal()
    apart = (squares[:, None] + squares - 2 * products).clamp(min=0).sqrt()
    rows = torch.arange(len(models), device=models.device)
    older = rows > rows[:, None]
    distance, nearest = torch.where(older & apart.isfinite(), apart, torch.inf).min(1)
    peak = reduce(
        torch.maximum, ((_rows(piece, nearest) - piece).abs().amax(1) for piece in pieces)
    )
    related = (distance <= ratio * turn.norm) & (peak <= ratio * turn.peak)
    worked = (related & (distance >= turn.norm / ratio)).double()
    parent = ((rows == nearest[:, None]) & related[:, None]).double()
    # Σ parentⁿ worked, the sum over all ancestors: (1 + P)(1 + P²)(1 + P⁴)…
    turns: Tensor = worked + parent @ worked
    power = parent
    for _ in range((len(models) - 1).bit_length() - 1):
        power = power @ power
        turns = turns + power @ turns
    return turns


def _rows(models: Tensor, numbers: Tensor) -> Tensor:
    """models[numbers], which takes a CPU twice as long.

    Compiled, that is one program for any number of rings; with index_select there is one for each.
    """
    if models.is_cuda or torch.compiler.is_compiling():
        return models[numbers]
    return models.index_select(0, numbers)


def _products(models: Tensor, origin: Tensor) -> Tensor:
    """(models − origin)(models − origin)ᵀ.

    In float64: turns are short beside what a lap, or a lie, adds up to.  A GPU sums few long rows
    faster line by line, all lines at once, and a CPU as few columns.
    """
    models = models - origin
    if not models.is_cuda:
        columns = models.T.contiguous().double()
        return columns.T @ columns
    models = models.double()
    lines = pad(models, (0, -models.shape[1] % LINE)).unflatten(1, (-1, LINE)).transpose(0, 1)
    products: Tensor = (lines @ lines.mT).sum(0)
    return products
