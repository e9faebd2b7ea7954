"""Which stored models go back to which, and how many turns are in them, as far as one can see."""

import torch
from torch import Tensor
from torch.nn.functional import pad

LINE = 512


def lineage(models: Tensor, length: Tensor, ratio: float) -> tuple[Tensor, Tensor]:
    """Of models [S, d], nearest predecessor's first: how many turns, and which go back to others.

    Model j goes back to the older one that is nearest to it, if that is no farther than ratio · ℓ,
    with ℓ the length of a usual turn.  Then it has one turn more; or as many, if the two are nearer
    than ℓ / ratio, since then nobody has worked on it.  A model that goes back to no stored one
    counts no turns.
    """
    products = _products(models.double())  # turns are short beside what a lap, or a lie, adds up to
    squares = products.diagonal()
    apart = (squares[:, None] + squares - 2 * products).clamp(min=0).sqrt()
    rows = torch.arange(len(models), device=models.device)
    older = rows > rows[:, None]
    distance, nearest = torch.where(older & apart.isfinite(), apart, torch.inf).min(1)
    related = distance <= ratio * length
    worked = (related & (distance >= length / ratio)).double()
    parent = ((rows == nearest[:, None]) & related[:, None]).double()
    # Σ parentⁿ worked, the sum over all ancestors: (1 + P)(1 + P²)(1 + P⁴)…
    turns, power = worked + parent @ worked, parent
    for _ in range((len(models) - 1).bit_length() - 1):
        power = power @ power
        turns = turns + power @ turns
    return turns, related


def _products(models: Tensor) -> Tensor:
    """models · modelsᵀ.  A GPU sums few long rows faster line by line, all lines at once."""
    if not models.is_cuda:
        return models @ models.T
    lines = pad(models, (0, -models.shape[1] % LINE)).unflatten(1, (-1, LINE)).transpose(0, 1)
    products: Tensor = (lines @ lines.mT).sum(0)
    return products
