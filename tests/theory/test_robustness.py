"""The bounds of docs/research/bound.md: by hand, against each other, and refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from basil.errors import UserError
from basil.theory import (
    Losses,
    breakdown,
    equal_data_gap,
    evenly_spread,
    gradient_bound,
    loss_slack,
    own_models_error,
    ring_error,
    server_breakdown,
    server_gap,
    worst_case_error,
    worst_error,
)

Array = NDArray[np.float64]
ALIKE = Losses(1.0, 0.2, common_curvature=True)
UNLIKE = Losses(1.0, 2 / 4.4, smooth=3.4)


# -- the formulas -----------------------------------------------------------------------------


def test_the_closed_form_by_hand() -> None:
    assert worst_error(ALIKE) == pytest.approx(9)  # (1 + 0.8)/(1 − 0.8)
    assert worst_error(replace(ALIKE, steps=2)) == pytest.approx(1.64 / 0.36)
    noise = replace(ALIKE, dissimilarity=0.0, slack=0.5)  # r² = q²(r² + 2ε)
    assert worst_error(noise) == pytest.approx(0.8 / 0.6)
    flat = Losses(0.0, 0.8, strong=0.25, smooth=0.25, slack=0.5)  # r² = q²(r² + 2ε/μ)
    assert worst_error(flat) == pytest.approx(0.8 * 2 / 0.6)
    assert math.isinf(worst_error(UNLIKE))  # 0.545 · √3.4 > 1
    assert ring_error([False] * 5, 1, ALIKE) == pytest.approx(1)  # sequential training: ρ
    assert math.isinf(ring_error([True, True, False, False], 2, ALIKE))  # node 2 hears 0 and 1


def test_where_every_turn_hears_a_byzantine_node_both_theorems_agree() -> None:
    flags = evenly_spread(12, 4)
    for losses in (
        ALIKE,
        replace(ALIKE, slack=2.0, steps=2),
        Losses(3.0, 0.004, strong=100.0, smooth=150.0, slack=0.5, steps=3),
        Losses(3.0, 0.004, strong=100.0, smooth=150.0, slack=0.5, steps=3, common_curvature=True),
    ):
        assert ring_error(flags, 3, losses) == pytest.approx(worst_error(losses), rel=1e-6)


def test_equal_minimisers_are_left_or_found() -> None:
    """G = ε = 0: from elsewhere models come back to x*, or never do."""
    flags = [i % 2 == 1 for i in range(8)]
    assert ring_error(flags, 2, Losses(0.0, 0.5, smooth=3.0)) == 0  # 0.5 · √3 < 1
    assert math.isinf(ring_error(flags, 2, Losses(0.0, 0.4, smooth=3.4)))  # 0.6 · √3.4 > 1


def test_more_work_in_a_turn_and_a_like_curvature_help() -> None:
    flags = evenly_spread(20, 6)
    errors = [ring_error(flags, 4, replace(ALIKE, steps=steps)) for steps in (1, 2, 5, 50)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] == pytest.approx(1, rel=1e-3)  # each ends at its own minimiser, within ρ
    unlike = [ring_error(flags, 4, Losses(1.0, 0.3, smooth=L)) for L in (1.0, 1.1, 1.2)]
    assert unlike == sorted(unlike)
    assert unlike[0] == pytest.approx(ring_error(flags, 4, replace(ALIKE, rate=0.3)))


def test_byzantine_nodes_are_as_far_apart_as_can_be() -> None:
    for nodes, byzantine in ((24, 5), (10, 3), (7, 0), (9, 8)):
        flags = evenly_spread(nodes, byzantine)
        assert sum(flags) == byzantine
        at = [i for i, flag in enumerate(flags) if flag]
        gaps = [(b - a - 1) % nodes + 1 for a, b in zip(at, at[1:] + at[:1], strict=True)]
        assert not gaps or max(gaps) - min(gaps) <= 1


def two_worlds(nodes: int, byzantine: int, p: int) -> tuple[float, float, float]:
    """Of h benign nodes p have their minimiser at 1, or (nobody can tell) at −1; the rest at 0.

    The largest and the root mean square ‖∇f_i(x*)‖, and what the rest cannot avoid on average.
    """
    h = nodes - byzantine
    middle = p / h
    own = [1 - middle] * p + [middle] * (h - p)
    x = np.linspace(-2, 2, 4001)
    both = np.maximum((x - middle) ** 2, 0) + (x + middle) ** 2
    unavoidable = float(both.min()) / 2 * (h - p) / h
    return max(own), math.sqrt(np.mean(np.square(own))), unavoidable


@pytest.mark.parametrize(("nodes", "byzantine"), [(24, 1), (24, 5), (24, 12), (24, 17), (9, 4)])
def test_what_no_ring_can_avoid(nodes, byzantine) -> None:
    h = nodes - byzantine
    found = 0.0
    for p in range(1, min(byzantine, h - 1) + 1):
        G, _, unavoidable = two_worlds(nodes, byzantine, p)
        found = max(found, math.sqrt(unavoidable) / G)
    assert own_models_error(nodes, byzantine, ALIKE) == pytest.approx(found, rel=1e-6)
    assert own_models_error(nodes, byzantine, ALIKE) <= ring_error(
        evenly_spread(nodes, byzantine), nodes - 1, ALIKE
    )


def test_what_one_model_cannot_avoid() -> None:
    """Without B, two worlds give four times the published constant: it is one that holds."""
    for b in (1, 4, 11):
        _, G, _ = two_worlds(24, b, b)
        one_model = (b / (24 - b)) ** 2 / 2
        assert one_model == pytest.approx(4 * server_gap(24, b, G))
    assert math.isinf(server_gap(24, 12, 1.0))
    assert server_breakdown(0.0) == 0.5
    assert server_gap(30, 9, 2.0, 0.5, 1.0) == pytest.approx(4 * 9 / (8 * 0.5 * 3))
    assert math.isinf(server_gap(30, 10, 1.0, growth=1.0))


def test_unlike_curvature_breaks_a_ring_where_a_server_would_stand() -> None:
    """Four groups, each flat along an axis of its own: B² is the variance over the squared mean."""
    curvatures = np.array([1.0, 3.4, 3.4, 3.4])
    B = curvatures.std() / curvatures.mean()
    assert breakdown(24, 2, UNLIKE) == 8 < server_breakdown(B) * 24


def test_the_slack_of_a_batch() -> None:
    S, m, sigma, failure = 5, 20, 1.5, 0.2
    slack = loss_slack(sigma, m, S, failure)
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(4000, S)) * slack  # of all models, in 4000 turns
    seen = truth + rng.normal(size=(4000, S)) * sigma / math.sqrt(m)
    chosen = np.take_along_axis(truth, seen.argmin(1)[:, None], 1)[:, 0]
    assert np.mean(chosen - truth.min(1) > slack) <= failure
    assert loss_slack(sigma, 4 * m, S, failure) == pytest.approx(slack / 2)


def test_equal_data_that_are_not_convex() -> None:
    """f = x² + 3 sin² x: smooth (L = 8), Polyak–Łojasiewicz with μ = 1/32, and not convex
    (Karimi et al. 2016).  Byzantine nodes send the point with the largest gradient they may, or
    the one from which the step goes least far down."""

    def f(x: Array) -> Array:
        return np.asarray(x**2 + 3 * np.sin(x) ** 2)

    def slope(x: Array) -> Array:
        return np.asarray(2 * x + 3 * np.sin(2 * x))

    grid = np.linspace(-4, 4, 8001)
    rate, slack, turns = 1 / 8, 0.05, 400
    for worst in (lambda z: slope(z) ** 2, lambda z: f(z - rate * slope(z))):
        x, squares = 3.5, []
        start = float(f(np.array(x)))
        for _ in range(turns):
            allowed = grid[f(grid) <= f(np.array(x)) + slack]
            z = allowed[np.argmax(worst(allowed))]
            squares.append(float(slope(z)) ** 2)
            x = float(z - rate * slope(z))
        assert np.mean(squares) <= gradient_bound(turns, rate, 8, start, slack)
        losses = Losses(0.0, rate, strong=1 / 32, smooth=8.0, slack=slack)
        assert float(f(np.array(x))) <= equal_data_gap(losses)


def test_equal_data_cannot_be_broken_whatever_the_curvature() -> None:
    losses = Losses(0.0, 0.1, strong=1.0, smooth=10.0, slack=0.5)
    assert math.isinf(worst_error(losses))  # Theorem 1 does not know that data are equal
    assert equal_data_gap(losses) == pytest.approx(0.5 * 0.9 / 0.1)
    gap = 100.0
    for _ in range(300):
        gap = 0.9 * (gap + 0.5)
    assert gap <= equal_data_gap(losses) * (1 + 1e-9)


# -- refusals, and the command ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Losses(-1.0, 0.1), "dissimilarity = -1.0"),
        (lambda: Losses(math.nan, 0.1), "dissimilarity = nan"),
        (lambda: Losses(1.0, 2.0), "less than 2 / smooth = 2"),
        (lambda: Losses(1.0, 0.1, strong=2.0), "0 < strong ≤ smooth"),
        (lambda: Losses(1.0, 0.1, steps=0), "steps = 0"),
        (lambda: Losses(1.0, 0.1, slack=-0.1), "slack = -0.1"),
        (lambda: ring_error([True, True], 1, ALIKE), "at least one is benign"),
        (lambda: ring_error([False, True], 2, ALIKE), "0 to 1 predecessors"),
        (lambda: evenly_spread(5, 5), "byzantine = 5"),
        (lambda: worst_case_error([True, False], 1, ALIKE), "each benign node hears another"),
        (lambda: loss_slack(1.0, 10, 4, 0.0), "failure = 0.0"),
        (lambda: loss_slack(1.0, 0, 4, 0.1), "samples = 0"),
        (lambda: server_breakdown(-1.0), "growth = -1.0"),
        (lambda: server_gap(10, 3, 1.0, strong=0.0), "strong = 0.0"),
        (lambda: gradient_bound(10, 0.3, 4.0, 1.0), "at most 1 / smooth = 0.25"),
        (lambda: equal_data_gap(Losses(0.0, 1.5)), "at most 1 / smooth = 1"),
    ],
)
def test_what_cannot_be_asked_for_is_said(call, says) -> None:
    with pytest.raises(UserError, match=says):
        call()
