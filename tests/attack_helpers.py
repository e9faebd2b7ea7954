"""A Byzantine node's view of one turn, made up."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from basil import rng
from basil.attack import ATTACKS, View
from basil.attack.view import Lie
from basil.learning.layout import Layout, layout_of
from basil.learning.models import mlp
from basil.learning.pool import Batch
from basil.learning.promises import Losses
from basil.learning.symmetry import Symmetries, find
from basil.protocol.requests import Score

NETWORK = mlp((3,), 2, hidden=4)
LAYOUT = layout_of(NETWORK)
SYMMETRIES = find(NETWORK, LAYOUT, torch.zeros(2, 3))
D = LAYOUT.size


def view(
    *,
    honest: Tensor | None = None,
    chosen: Tensor | None = None,
    benign: list[Tensor] | dict[int, Tensor] | None = None,
    layout: Layout = LAYOUT,
    lap: int = 4,
    k: int = 3,
    seed: int = 0,
    receivers: tuple[int, ...] = (10, 11),
    colluders: frozenset[int] = frozenset({1}),
    weights: Mapping[int, Mapping[int, float]] | None = None,
    symmetries: Symmetries = SYMMETRIES,
) -> View:
    """A turn of node 1; benign models given as a list belong to nodes 10, 11, …"""
    if isinstance(benign, list):
        benign = dict(enumerate(benign, start=10))
    everybody = dict.fromkeys((*(benign or {}), *colluders), 1.0)
    draw = rng.torch_stream(seed, "test vectors")
    return View(
        node=1,
        round=k,
        selected=torch.randn(layout.size, generator=draw) if chosen is None else chosen,
        honest=torch.randn(layout.size, generator=draw) if honest is None else honest,
        layout=layout,
        spare=lambda: Batch(np.arange(2)),
        lap=lap,
        receivers=receivers,
        colluders=colluders,
        weights=lambda j: everybody if weights is None else weights[j],
        seed=seed,
        state={},
        shared={},
        benign=benign,
        symmetries=symmetries,
    )


def told(name: str, seen: View, losses: Callable[[Tensor], Tensor], **options: Any) -> Lie:
    """What an attack sends that asks for losses; `losses`: of a model, one for each sample."""
    trial = ATTACKS[name].lie(seen, **options)
    answer: Any = None
    try:
        while True:
            request = trial.send(answer)
            if isinstance(request, Score):
                answer = Losses(losses(request.model))
            else:
                answer = Losses(torch.stack([losses(model) for model in request.models]))
    except StopIteration as end:
        lie: Lie = end.value
        return lie
