"""A Byzantine node's view of one turn, made up."""

from collections.abc import Mapping

import torch
from torch import Tensor

from basil import rng
from basil.attack import View
from basil.learning.layout import Layout, layout_of
from basil.learning.models import mlp

LAYOUT = layout_of(mlp((3,), 2, hidden=4))
D = LAYOUT.size


def view(
    *,
    honest: Tensor | None = None,
    chosen: Tensor | None = None,
    benign: list[Tensor] | dict[int, Tensor] | None = None,
    layout: Layout = LAYOUT,
    k: int = 3,
    seed: int = 0,
    receivers: tuple[int, ...] = (10, 11),
    colluders: frozenset[int] = frozenset({1}),
    weights: Mapping[int, Mapping[int, float]] | None = None,
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
        receivers=receivers,
        colluders=colluders,
        weights=lambda j: everybody if weights is None else weights[j],
        seed=seed,
        state={},
        shared={},
        benign=benign,
    )
