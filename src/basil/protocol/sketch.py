"""Count Sketch: a few numbers of a model that tell how far it is from another."""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from basil import rng
from basil.errors import UserError
from basil.protocol.graph.aggregate import distances
from basil.protocol.rules.freshest import non_negative


@dataclass(frozen=True)
class Sketch:
    """What a model is announced by, and how near it must be for anybody to fetch it.

    s(x) has `size` numbers: s_h = Σ_{c: h(c) = h} ±x_c, with places h(c) and signs drawn once for
    all.  It keeps distances on average.  In round k of K a model is near if

        ‖s(x) − s(x_j)‖ ≤ γ exp(−κ k/K) ‖s(x)‖    (SketchGuard, Rangwala et al. 2025, 2510.07922).

    Everybody can see whether a fetched model has the sketch that was announced, so here a sketch is
    always its model's.  Between real machines models travel whole.
    """

    size: int
    gamma: float
    kappa: float
    rounds: int
    seed: int  # the run's

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UserError(f"scheme.sketch = {self.size}: it must be 1 or more")
        non_negative(self.gamma, "gamma")
        non_negative(self.kappa, "kappa")

    def compared(self, own: Tensor, models: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """How far each model is from one's own, by their sketches, and how far is near."""
        hashed = hashes(self.seed, len(own), self.size, own.device)
        mine, *theirs = (sketched(x, hashed, self.size) for x in (own, *models))
        shrinking = self.gamma * math.exp(-self.kappa * k / self.rounds)
        return distances(mine, torch.stack(theirs)), shrinking * mine.norm()


def sketched(model: Tensor, hashed: tuple[Tensor, Tensor], size: int) -> Tensor:
    """Each coordinate, with its sign, is added to its place."""
    places, signs = hashed
    return model.new_zeros(size).index_add_(0, places, signs * model)


@lru_cache(maxsize=8)
def hashes(seed: int, length: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Places and signs, the same for all nodes: without that sketches could not be compared."""
    stream = rng.stream(seed, "sketch")
    places = torch.from_numpy(stream.integers(size, size=length)).to(device)
    signs = torch.from_numpy(2.0 * stream.integers(2, size=length) - 1).float().to(device)
    return places, signs
