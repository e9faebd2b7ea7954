"""Aggregation rules against loops that spell out their formulas, and against byzfl's."""

import math
import statistics
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from basil.protocol.graph import aggregate

from aggregation_helpers import apart, same, stacks

quick = settings(max_examples=60, deadline=None)


@quick
@given(stack=stacks(), share=st.floats(0.01, 0.9))
def test_weighted_mean(stack: tuple[Tensor, Tensor], share: float) -> None:
    own, models = stack
    w = share / len(models)
    expected = [
        (1 - share) * o + sum(w * row[c] for row in models.tolist())
        for c, o in enumerate(own.tolist())
    ]
    assert same(aggregate.weighted_mean(own, models, torch.full((len(models),), w)), expected)


@quick
@given(stack=stacks(), data=st.data())
def test_trimmed_mean(stack: tuple[Tensor, Tensor], data: st.DataObject) -> None:
    own, models = stack
    trim = data.draw(st.integers(0, (len(models) - 1) // 2))
    expected = []
    for c, o in enumerate(own.tolist()):
        column = sorted(row[c] for row in models.tolist())
        for _ in range(trim):
            column.remove(max(column))
            column.remove(min(column))
        expected.append((sum(column) + o) / (len(column) + 1))
    assert same(aggregate.trimmed_mean(own, models, trim), expected)


@quick
@given(stack=stacks())
def test_median(stack: tuple[Tensor, Tensor]) -> None:
    own, models = stack
    rows = [own.tolist(), *models.tolist()]
    expected = [statistics.median(row[c] for row in rows) for c in range(len(own))]
    assert same(aggregate.median(own, models), expected)


@quick
@given(stack=stacks(), radius=st.floats(0.01, 5))
def test_clipped(stack: tuple[Tensor, Tensor], radius: float) -> None:
    own, models = stack
    w = 1 / (len(models) + 1)
    expected = own.tolist()
    for row in models.tolist():
        factor = min(1.0, radius / apart(row, own.tolist()))
        for c, o in enumerate(own.tolist()):
            expected[c] += w * factor * (row[c] - o)
    weights = torch.full((len(models),), w)
    assert same(aggregate.clipped(own, models, weights, radius), expected)


@quick
@given(stack=stacks(least=2), data=st.data())
def test_radius_from_the_nearest(stack: tuple[Tensor, Tensor], data: st.DataObject) -> None:
    own, models = stack
    m = len(models)
    byzantine = data.draw(st.integers(1, m - 1))
    ordered = sorted(apart(row, own.tolist()) for row in models.tolist())
    w = 1 / (m + 1)
    expected = math.sqrt(sum(w * d * d for d in ordered[: m - byzantine]) / (w * byzantine))
    found = aggregate.benign_radius(
        aggregate.distances(own, models), torch.full((m,), w), byzantine
    )
    assert float(found) == pytest.approx(expected, rel=1e-4)
    assert aggregate.benign_radius(torch.ones(m), torch.full((m,), w), 0).isinf()


@quick
@given(stack=stacks(), data=st.data())
def test_nearest_mean(stack: tuple[Tensor, Tensor], data: st.DataObject) -> None:
    own, models = stack
    keep = data.draw(st.integers(1, len(models)))
    nearest = sorted(models.tolist(), key=lambda row: apart(row, own.tolist()))[:keep]
    expected = [
        (o + sum(row[c] for row in nearest)) / (keep + 1) for c, o in enumerate(own.tolist())
    ]
    assert same(aggregate.nearest_mean(own, models, keep), expected)


@quick
@given(stack=stacks(), radius=st.floats(0, 4))
def test_mean_within(stack: tuple[Tensor, Tensor], radius: float) -> None:
    own, models = stack
    near = [row for row in models.tolist() if apart(row, own.tolist()) <= radius]
    expected = [
        sum(row[c] for row in near) / len(near) if near else o for c, o in enumerate(own.tolist())
    ]
    assert same(aggregate.mean_within(own, models, torch.tensor(radius)), expected)


@quick
@given(stack=stacks(), seed=st.integers(0, 99))
def test_mean_of_better(stack: tuple[Tensor, Tensor], seed: int) -> None:
    own, models = stack
    losses = torch.rand(len(models) + 1, generator=torch.Generator().manual_seed(seed))
    mine, theirs = float(losses[0]), losses[1:].tolist()
    rows = models.tolist()
    better = [row for row, loss in zip(rows, theirs, strict=True) if loss <= mine]
    better = better or [rows[theirs.index(min(theirs))]]
    expected = [sum(row[c] for row in better) / len(better) for c in range(len(own))]
    assert same(aggregate.mean_of_better(own, models, losses[1:], losses[0]), expected)


ROBUST: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "trimmed mean": lambda own, models: aggregate.trimmed_mean(own, models, 2),
    "median": aggregate.median,
    "clipped": lambda own, models: aggregate.clipped(
        own, models, torch.full((len(models),), 0.1), 0.5
    ),
    "clipped, radius estimated": lambda own, models: aggregate.clipped(
        own,
        models,
        torch.full((len(models),), 0.1),
        aggregate.benign_radius(
            aggregate.distances(own, models), torch.full((len(models),), 0.1), 2
        ),
    ),
    "nearest": lambda own, models: aggregate.nearest_mean(own, models, 3),
    "within": lambda own, models: aggregate.mean_within(own, models, torch.tensor(2.0)),
    "better": lambda own, models: aggregate.mean_of_better(
        own, models, torch.tensor([torch.nan, torch.inf, 0.5, 2.0, 3.0]), torch.tensor(1.0)
    ),
}


@pytest.mark.parametrize("rule", ROBUST.values(), ids=ROBUST.keys())
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf, 3e38, -3e38])
def test_garbage_is_never_used(rule: Callable[[Tensor, Tensor], Tensor], value: float) -> None:
    own = torch.zeros(4)
    models = torch.full((5, 4), 0.5)
    models[0, 1] = value
    models[1] = value
    for stack in (models, torch.full((5, 4), value)):
        found = rule(own, stack)
        assert found.isfinite().all()
    assert rule(own, models).abs().max() <= 0.5


@pytest.mark.parametrize("seed", range(20))
def test_byzfl_agrees(byzfl: Any, seed: int) -> None:
    numbers = torch.randn(9, 5, generator=torch.Generator().manual_seed(seed))
    own, models = numbers[0], numbers[1:]
    for f in range(4):
        nearest = aggregate.nearest_mean(own, models, 8 - f)
        assert same(nearest, byzfl.MoNNA(f=f, idx=0)(numbers).tolist())
        # BRIDGE trims the neighbours and adds oneself; byzfl's rule has no oneself.
        kept = 8 - 2 * f
        expected = (kept * byzfl.TrMean(f=f)(models) + own) / (kept + 1)
        assert same(aggregate.trimmed_mean(own, models, f), expected.tolist())
    assert same(aggregate.median(own, models), byzfl.Median()(numbers).tolist())
    for tau in (0.5, 1.0, 3.0):
        # Centred at 0: byzfl 0.0.11 refuses every centre that it is given.
        expected = own + byzfl.CenteredClipping(L=1, tau=tau)(models - own)
        found = aggregate.clipped(own, models, torch.full((8,), 1 / 8), tau)
        assert same(found, expected.tolist())
