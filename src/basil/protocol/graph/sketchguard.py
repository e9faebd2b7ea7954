"""SketchGuard (Rangwala et al. 2025, arXiv 2510.07922): compare sketches, fetch few models."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from basil import rng
from basil.errors import UserError
from basil.protocol.graph.aggregate import distances, finite_or_own, sound
from basil.protocol.graph.graph_round import RoundInput, Step, gossip, share
from basil.protocol.node import Node
from basil.protocol.requests import Combine, Fetch, Protocol
from basil.protocol.rules.freshest import non_negative


def sketchguard(
    node: Node, *, sketch: int = 1000, gamma: float = 2.0, kappa: float = 1.0, alpha: float = 0.5
) -> Protocol:
    """As `balance`, by sketches: only the models of neighbours whose sketch is near are fetched.

    A sketch s(x) has `sketch` numbers: s_h = Σ_{c: h(c) = h} ±x_c, with places h(c) and signs drawn
    once for all (Count Sketch, which keeps distances on average).  Accept j if ‖s_i − s_j‖ ≤ γ
    exp(−κ k/K) ‖s_i‖; if there is none, the nearest; x_i ← α x_i + (1 − α) mean of the accepted,
    then eq. (2) from there.

    Defaults and the nearest as a last resort are those of the authors' code (murtazahr/Sketchguard,
    murmura/aggregation/sketchguard.py), which after three rounds with few accepted also widens the
    radius by half.  Everybody can see whether a fetched model has the sketch that was announced, so
    here a sketch is always its model's.  Between real machines models travel whole.  With
    `graph.mixing` all of them would be fetched first: that is not counted.
    """
    if sketch < 1:
        raise UserError(f"scheme.sketch = {sketch}: it must be 1 or more")
    non_negative(gamma, "gamma")
    non_negative(kappa, "kappa")
    share(alpha, "alpha")

    def scheme(heard: RoundInput) -> Step:
        own, models = heard.own, heard.models
        if not heard.senders:
            return (yield from heard.train(own))
        fraction = gamma * math.exp(-kappa * heard.round / node.rounds)
        hashed = _hashes(node.on_graph.seed, len(own), sketch, own.device)
        near = yield Combine(lambda: screened(own, models, hashed, sketch, fraction), distances=1)
        accepted = near.nonzero()[:, 0]
        yield Fetch(len(accepted), len(own))
        mean = yield Combine(lambda: _mean(own, models[accepted]), averages=1)
        return (yield from heard.train(alpha * own + (1 - alpha) * mean))

    return gossip(node, scheme, announced=sketch)


def screened(
    own: Tensor, models: Tensor, hashed: tuple[Tensor, Tensor], size: int, fraction: float
) -> Tensor:
    """Whose sketch is within this fraction of the own one's length; or is the nearest."""
    mine, *theirs = (sketched(x, hashed, size) for x in (own, *models))
    apart = distances(mine, torch.stack(theirs))
    near = apart <= fraction * mine.norm()
    nearest = (torch.arange(len(apart), device=apart.device) == apart.argmin()) & apart.isfinite()
    return torch.where(near.any(), near, nearest)


def sketched(model: Tensor, hashed: tuple[Tensor, Tensor], size: int) -> Tensor:
    """Count Sketch: each coordinate, with its sign, is added to its place."""
    places, signs = hashed
    return model.new_zeros(size).index_add_(0, places, signs * model)


def _mean(own: Tensor, models: Tensor) -> Tensor:
    return sound(own, finite_or_own(own, models).mean(0)) if len(models) else own


@lru_cache(maxsize=8)
def _hashes(seed: int, length: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Places and signs, the same for all nodes: without that sketches could not be compared."""
    stream = rng.stream(seed, "sketch")
    places = torch.from_numpy(stream.integers(size, size=length)).to(device)
    signs = torch.from_numpy(2.0 * stream.integers(2, size=length) - 1).float().to(device)
    return places, signs
