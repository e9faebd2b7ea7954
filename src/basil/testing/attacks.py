"""Attacks: a view of one turn, made up, and what must hold for whatever is sent."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from basil import rng
from basil.attack import ATTACKS, Attack, DataAttack, View
from basil.attack.view import NO_SYMMETRIES, Lie, Outcome
from basil.learning.layout import Layout, layout_of
from basil.learning.models import mlp
from basil.learning.pool import Batch
from basil.learning.promises import Losses
from basil.learning.symmetry import Symmetries, find
from basil.protocol.drive import Driver
from basil.protocol.requests import Score
from basil.testing.runs import check_runs, must


def view(
    layout: Layout,
    *,
    honest: Tensor | None = None,
    chosen: Tensor | None = None,
    benign: list[Tensor] | dict[int, Tensor] | None = None,
    lap: int = 4,
    k: int = 3,
    seed: int = 0,
    receivers: tuple[int, ...] = (10, 11),
    colluders: frozenset[int] = frozenset({1}),
    weights: Mapping[int, Mapping[int, float]] | None = None,
    symmetries: Symmetries = NO_SYMMETRIES,
    outcome: Outcome = lambda j, own, sent: None,
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
        outcome=outcome,
    )


def told(attack: Attack, seen: View, losses: Callable[[Tensor], Tensor], **options: Any) -> Lie:
    """What an attack sends that asks for losses; `losses`: of a model, one for each sample."""
    trial = Driver(attack.lie(seen, **options))
    for request in trial:
        if isinstance(request, Score):
            trial.answer = Losses(losses(request.model))
        else:
            trial.answer = Losses(torch.stack([losses(model) for model in request.models]))
    return trial.result


def check_attack(attack: str | Callable[..., Any], **options: Any) -> None:
    """Lies have the right form, are the same again, and a run with them can be resumed."""
    with ATTACKS.lent(attack) as name:
        if not isinstance(ATTACKS[name], DataAttack):
            for seed, hidden, benign in ((0, 1, 1), (1, 4, 3), (2, 9, 6)):
                check_lies(ATTACKS[name], seed, hidden, benign, **options)
        check_runs("attack", {"name": name, **options})


def check_lies(attack: Attack, seed: int, hidden: int, benign: int, **options: Any) -> None:
    """Shape and dtype kept, inputs untouched, the same name of stream gives the same lie."""
    network = mlp((3,), 2, hidden=hidden)
    layout = layout_of(network)
    symmetries = find(network, layout, torch.zeros(2, 3))
    draw = rng.torch_stream(seed, "benign")
    others = [torch.randn(layout.size, generator=draw) for _ in range(benign)]
    lies = []
    for _ in range(2):
        shown = others if attack.omniscient else None
        seen = view(layout, seed=seed, benign=shown, symmetries=symmetries)
        before = [seen.honest.clone(), seen.chosen.clone(), *(b.clone() for b in others)]
        lies.append(told(attack, seen, lambda model: model[:3], **options))
        for was, now in zip(before, [seen.honest, seen.chosen, *others], strict=True):
            must(torch.equal(was, now), "it changes a model that it was shown: copy it first")
    once, again = map(_vectors, lies)
    must(len(once) == len(again), "of the same view it makes another lie: draw from view.generator")
    for one, other in zip(once, again, strict=True):
        must(isinstance(one, Tensor), f"it sends {type(one).__name__}, not a tensor")
        must(one.shape == (layout.size,), f"it sends {tuple(one.shape)}, not one model's vector")
        must(one.dtype == torch.float32, f"it sends {one.dtype}, not float32")
        must(
            torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0)),
            "of the same view it makes another lie: draw from view.generator or view.rng",
        )


def _vectors(lie: Lie) -> list[Tensor]:
    """What a lie consists of: one vector, or one for each receiver, or nothing."""
    if lie is None:
        return []
    return list(lie.values()) if isinstance(lie, Mapping) else [lie]
