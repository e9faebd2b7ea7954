"""SketchGuard (Rangwala et al. 2025, arXiv 2510.07922): compare sketches, fetch few models."""

import torch
from torch import Tensor

from basil.protocol.graph.aggregate import finite_or_own, sound
from basil.protocol.graph.graph_round import RoundInput, Step, gossip, share
from basil.protocol.node import Node
from basil.protocol.requests import Combine, Fetch, Protocol
from basil.protocol.sketch import Sketch


def sketchguard(
    node: Node, *, sketch: int = 1000, gamma: float = 2.0, kappa: float = 1.0, alpha: float = 0.5
) -> Protocol:
    """As `balance`, by sketches: only the models of neighbours whose sketch is near are fetched.

    Accept j if its sketch is near one's own (`protocol.sketch.Sketch` has the formula); if there is
    none, the nearest; x_i ← α x_i + (1 − α) mean of the accepted, then eq. (2) from there.

    Defaults and the nearest as a last resort are those of the authors' code (murtazahr/Sketchguard,
    murmura/aggregation/sketchguard.py), which after three rounds with few accepted also widens the
    radius by half.  With `graph.mixing` all models would be fetched first: that is not counted.
    """
    sketches = Sketch(sketch, gamma, kappa, node.rounds, node.seed)
    share(alpha, "alpha")

    def scheme(heard: RoundInput) -> Step:
        own, models = heard.own, heard.models
        if not heard.senders:
            return (yield from heard.train(own))
        compared = sketches.compared
        near = yield Combine(
            lambda: near_or_nearest(*compared(own, models, heard.round)), distances=1
        )
        accepted = near.nonzero()[:, 0]
        yield Fetch(len(accepted), len(own))
        mean = yield Combine(lambda: _mean(own, models[accepted]), averages=1)
        return (yield from heard.train(alpha * own + (1 - alpha) * mean))

    return gossip(node, scheme, announced=sketch)


def near_or_nearest(apart: Tensor, radius: Tensor) -> Tensor:
    """Who is near; if nobody is, the nearest whose model is finite."""
    near = apart <= radius
    nearest = (torch.arange(len(apart), device=apart.device) == apart.argmin()) & apart.isfinite()
    return torch.where(near.any(), near, nearest)


def _mean(own: Tensor, models: Tensor) -> Tensor:
    return sound(own, finite_or_own(own, models).mean(0)) if len(models) else own
