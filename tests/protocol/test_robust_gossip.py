"""CS₊, GTS and IOS: by hand, against loops over plain numbers, and against byzfl's MoNNA."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from robust_gossip import HONEST, RULE_OF, communication_step, worlds
from torch import Tensor

from basil.protocol.graph.aggregate import benign_radius, clipped, distances
from basil.protocol.graph.ios import scissored_mean
from basil.protocol.graph.robust_gossip import clipped_sum, trimmed_sum

from aggregation_helpers import apart, same, stacks

quick = settings(max_examples=60, deadline=None)
LINE = torch.tensor([[1.0], [2.0], [3.0], [10.0], [-20.0]])  # neighbours of a node at 0
EVEN = torch.full((5,), 1 / 6)


def test_cs_plus_by_hand() -> None:
    """b = 1: the two farthest, 10 and −20, are clipped to 3, the next: (1 + 2 + 3 + 3 − 3) / 6."""
    assert same(clipped_sum(torch.zeros(1), LINE, EVEN, 1, 1.0), [1.0])
    assert same(clipped_sum(torch.zeros(1), LINE, EVEN, 1, 0.5), [0.5])
    # b = 2: all but the nearest: (1 + 1 + 1 + 1 − 1) / 6.
    assert same(clipped_sum(torch.zeros(1), LINE, EVEN, 2, 1.0), [0.5])


def test_gts_by_hand() -> None:
    """b = 1: without −20: (1 + 2 + 3 + 10) / 6.  Unequal weights: part of 10 goes, too."""
    assert same(trimmed_sum(torch.zeros(1), LINE, EVEN, 1, 1.0), [16 / 6])
    weights = torch.tensor([0.3, 0.1, 0.1, 0.2, 0.2])
    # A weight of 0.3 goes: 0.2 at −20, and 0.1 of the 0.2 at 10.
    assert same(trimmed_sum(torch.zeros(1), LINE, weights, 1, 1.0), [0.3 + 0.2 + 0.3 + 1.0])


def test_ios_by_hand() -> None:
    """Means of 0 and the rest: −4/6, so −20 goes first; then 16/5, so 10; then 6/4 is left."""
    assert same(scissored_mean(torch.zeros(1), LINE, EVEN, 1), [16 / 5])
    assert same(scissored_mean(torch.zeros(1), LINE, EVEN, 2), [6 / 4])


@st.composite
def weighted(draw: Callable[..., Any]) -> tuple[Tensor, Tensor, list[float], int]:
    own, models = draw(stacks(least=2))
    m = len(models)
    given = draw(st.lists(st.integers(1, 9), min_size=m, max_size=m))
    weights = [g / (sum(given) + draw(st.integers(1, 9))) for g in given]
    return own, models, weights, draw(st.integers(0, (m - 1) // 2))


@quick
@given(case=weighted())
def test_cs_plus(case: tuple[Tensor, Tensor, list[float], int]) -> None:
    own, models, weights, b = case
    o, rows = own.tolist(), models.tolist()
    byzantine = sum(sorted(weights)[len(weights) - b :])
    radius, within = 0.0, 0.0
    for d, w in sorted((apart(row, o), w) for row, w in zip(rows, weights, strict=True)):
        within += w
        if within <= sum(weights) - 2 * byzantine + 1e-9:
            radius = d
    expected = list(o)
    for row, w in zip(rows, weights, strict=True):
        factor = min(1.0, radius / apart(row, o))
        for c in range(len(o)):
            expected[c] += w * factor * (row[c] - o[c])
    assert same(clipped_sum(own, models, torch.tensor(weights), b, 1.0), expected)


@quick
@given(case=weighted())
def test_gts(case: tuple[Tensor, Tensor, list[float], int]) -> None:
    own, models, weights, b = case
    o, rows = own.tolist(), models.tolist()
    left = sum(sorted(weights)[len(weights) - b :])
    expected = [value + sum(w * (r[c] - value) for r, w in zip(rows, weights, strict=True))
                for c, value in enumerate(o)]  # fmt: skip
    for _, row, w in sorted(
        ((apart(r, o), r, w) for r, w in zip(rows, weights, strict=True)), reverse=True
    ):
        gone, left = min(w, left), left - min(w, left)
        for c in range(len(o)):
            expected[c] -= gone * (row[c] - o[c])
    assert same(trimmed_sum(own, models, torch.tensor(weights), b, 1.0), expected)


@quick
@given(case=weighted())
def test_ios(case: tuple[Tensor, Tensor, list[float], int]) -> None:
    own, models, weights, b = case
    o, left = own.tolist(), list(zip(models.tolist(), weights, strict=True))
    mine = 1 - sum(weights)

    def mean() -> list[float]:
        total = mine + sum(w for _, w in left)
        return [(mine * o[c] + sum(w * r[c] for r, w in left)) / total for c in range(len(o))]

    for _ in range(b):
        center = mean()
        left.remove(max(left, key=lambda entry: apart(entry[0], center)))
    assert same(scissored_mean(own, models, torch.tensor(weights), b), mean())


@pytest.mark.parametrize("seed", range(10))
def test_gts_with_equal_weights_is_byzfls_monna_less_the_weight_of_those_set_aside(
    byzfl: Any, seed: int
) -> None:
    numbers = torch.randn(9, 5, generator=torch.Generator().manual_seed(seed))
    own, models, even = numbers[0], numbers[1:], torch.full((8,), 1 / 9)
    for f in range(4):
        nearest = byzfl.MoNNA(f=f, idx=0)(numbers)
        expected = own + (9 - f) / 9 * (nearest - own)
        assert same(trimmed_sum(own, models, even, f, 1.0), expected.tolist())


RULES = {
    "cs+": lambda own, models: clipped_sum(own, models, torch.full((5,), 0.1), 2, 1.0),
    "gts": lambda own, models: trimmed_sum(own, models, torch.full((5,), 0.1), 2, 1.0),
    "ios": lambda own, models: scissored_mean(own, models, torch.full((5,), 0.1), 2),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38, -3e38])
def test_garbage_is_never_used(rule: Callable[[Tensor, Tensor], Tensor], value: float) -> None:
    own, models = torch.zeros(4), torch.full((5, 4), 0.5)
    models[0, 1] = value
    models[1] = value
    assert rule(own, models).abs().max() <= 0.5
    assert rule(own, torch.full((5, 4), value)).isfinite().all()


@pytest.mark.parametrize("byzantine", [1, 6, 9])
@pytest.mark.parametrize("far", [0.1, 3.0, 1e4])
def test_as_in_a_plain_reading_of_the_authors_code(byzantine: int, far: float) -> None:
    """examples/robust_gossip.py, on its graph: 26 honest nodes, and b that all say the same."""
    draw = torch.Generator().manual_seed(byzantine)
    honest, W = torch.randn(HONEST, 40, generator=draw), worlds(byzantine)
    step = communication_step(W)
    for j in range(HONEST):
        lie = honest[j] + far * torch.randn(40, generator=draw)
        everybody = torch.cat([honest, lie.expand(byzantine, -1)])
        w = torch.cat([W[j], W[j].max().expand(byzantine)])
        w[j] = 1 - w.sum()
        plain = {name: rule(everybody, w, j, byzantine, step) for name, rule in RULE_OF.items()}

        near = W[j] > 0
        models = torch.cat([honest[near], everybody[HONEST:]])
        weights = torch.cat([W[j][near], w[HONEST:]])
        mine, b = honest[j], byzantine
        radius = benign_radius(distances(mine, models), weights, b)
        found = {
            "cs+": clipped_sum(mine, models, weights, b, step),
            "gts": trimmed_sum(mine, models, weights, b, step),
            "clipped-gossip": clipped(mine, models, step * weights, radius),
            "ios": scissored_mean(mine, models, weights, b),
        }
        for name, expected in plain.items():
            torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=2e-4)
