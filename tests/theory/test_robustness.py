"""The bounds of docs/research/bound.md against rings that are played out, and each other."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
from basil.theory.robustness import hearings
from basil.theory.worst_case import grouped, ring_of_groups, table

Array = NDArray[np.float64]
ALIKE = Losses(1.0, 0.2, common_curvature=True)
UNLIKE = Losses(1.0, 2 / 4.4, smooth=3.4)


# -- a ring that is played out: matrices of any shape, a memory, a choice by loss -------------


@dataclass
class Ring:
    flags: list[bool]
    connectivity: int
    losses: Losses
    matrices: Array  # [node, d, d]
    centres: Array  # [node, d]

    @property
    def benign(self) -> list[int]:
        return [i for i, flag in enumerate(self.flags) if not flag]

    @property
    def optimum(self) -> Array:
        A, c = self.matrices[self.benign], self.centres[self.benign]
        return np.linalg.solve(A.sum(0), np.einsum("nij,nj->i", A, c))

    def loss(self, node: int, x: Array) -> float:
        return float((x - self.centres[node]) @ self.matrices[node] @ (x - self.centres[node]) / 2)

    def gradient(self, node: int, x: Array) -> Array:
        return np.asarray(self.matrices[node] @ (x - self.centres[node]))

    def train(self, node: int, x: Array) -> Array:
        for _ in range(self.losses.steps):
            x = x - self.losses.rate * self.gradient(node, x)
        return x

    def distance(self, x: Array) -> float:
        away = x - self.optimum
        norm = self.matrices[self.benign[0]] if self.losses.common_curvature else np.eye(len(x))
        return math.sqrt(away @ norm @ away)

    def play(
        self, laps: int, push: Callable[[int, float], Array], rng: np.random.Generator
    ) -> list[float]:
        """The root mean square error after each lap, from x⁰ = x*.

        `push(node, loss)` is what Byzantine nodes send to one whose best benign candidate has this
        loss.  Each loss that a node sees is wrong by up to ε/2.
        """
        N, errors = len(self.flags), []
        models = dict.fromkeys(self.benign, self.optimum)
        for _ in range(laps):
            for node in self.benign:
                before = [(node - back) % N for back in range(1, self.connectivity + 1)]
                kept = [models[other] for other in before if not self.flags[other]]
                if any(self.flags[other] for other in before):
                    kept.append(push(node, min(self.loss(node, x) for x in kept)))
                seen = [
                    self.loss(node, x) + rng.uniform(-0.5, 0.5) * self.losses.slack for x in kept
                ]
                models[node] = self.train(node, kept[int(np.argmin(seen))])
            squares = [self.distance(x) ** 2 for x in models.values()]
            errors.append(math.sqrt(np.mean(squares)))
        return errors

    def on_the_border(self, node: int, loss: float, direction: Array) -> Array:
        steep = direction @ self.matrices[node] @ direction
        return np.asarray(self.centres[node] + direction * math.sqrt(2 * loss / steep))

    def worst_of(self, directions: Array) -> Callable[[int, float], Array]:
        """Sends what leads furthest away from x*, or furthest from the next benign node's."""

        def push(node: int, loss: float) -> Array:
            after = self.benign[(self.benign.index(node) + 1) % len(self.benign)]
            points = [self.on_the_border(node, loss, w) for w in directions]
            return max(points, key=lambda x: self.loss(after, self.train(node, x)))

        return push


@st.composite
def rings(draw: st.DrawFn) -> Ring:
    nodes = draw(st.integers(4, 9))
    flags = draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes))
    flags[draw(st.integers(0, nodes - 1))] = False
    connectivity = draw(st.integers(1, nodes - 1))
    d, seed = draw(st.integers(1, 3)), draw(st.integers(0, 2**32 - 1))
    L = draw(st.floats(1, 6))
    common = draw(st.booleans())
    rng = np.random.default_rng(seed)

    def matrix() -> Array:
        turn, _ = np.linalg.qr(rng.normal(size=(d, d)))
        return np.asarray(turn @ np.diag(rng.uniform(1, L, d)) @ turn.T)

    matrices = np.stack([matrix()] * nodes if common else [matrix() for _ in range(nodes)])
    losses = Losses(
        dissimilarity=0,
        rate=draw(st.floats(0.2, 1.9)) / L,
        smooth=L,
        steps=draw(st.integers(1, 3)),
        slack=draw(st.sampled_from([0.0, 0.1, 2.0])),
        common_curvature=common,
    )
    ring = Ring(flags, connectivity, losses, matrices, rng.normal(size=(nodes, d)))
    G = max(float(np.linalg.norm(ring.gradient(i, ring.optimum))) for i in ring.benign)
    ring.losses = replace(losses, dissimilarity=G * (1 + 1e-9))
    return ring


@settings(max_examples=150, deadline=None)
@given(rings(), st.integers(0, 2**32 - 1))
def test_no_ring_is_worse_than_the_bound(ring: Ring, seed: int) -> None:
    bound = ring_error(ring.flags, ring.connectivity, ring.losses)
    heard = hearings(ring.flags, ring.connectivity)
    assert math.isinf(bound) or all(hearing.benign for hearing in heard)
    if math.isinf(bound):
        return
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(12, ring.centres.shape[1]))
    measured = max(ring.play(12, ring.worst_of(directions), rng))
    assert measured <= bound * (1 + 1e-6) + 1e-9
    assert bound <= worst_error(ring.losses) * (1 + 1e-6)  # where the Byzantine nodes are helps


@settings(max_examples=60, deadline=None)
@given(rings(), st.integers(0, 2**32 - 1))
def test_theorem_1_needs_the_mean_square_of_the_dissimilarity_only(ring: Ring, seed: int) -> None:
    if not all(hearing.benign for hearing in hearings(ring.flags, ring.connectivity)):
        return
    squares = [np.sum(ring.gradient(i, ring.optimum) ** 2) for i in ring.benign]
    ring.losses = replace(ring.losses, dissimilarity=math.sqrt(np.mean(squares)) * (1 + 1e-9))
    rng = np.random.default_rng(seed)
    push = ring.worst_of(rng.normal(size=(12, ring.centres.shape[1])))
    assert max(ring.play(12, push, rng)) <= worst_error(ring.losses) * (1 + 1e-6) + 1e-9


def test_x_far_away_comes_back_under_the_bound() -> None:
    """It holds in the long run from any start: here, 10⁶ away."""
    flags = evenly_spread(9, 3)
    rng = np.random.default_rng(0)
    ring = Ring(flags, 2, ALIKE, np.stack([np.eye(2)] * 9), rng.normal(size=(9, 2)))
    G = max(float(np.linalg.norm(ring.gradient(i, ring.optimum))) for i in ring.benign)
    ring.losses = replace(ALIKE, dissimilarity=G)
    push = ring.worst_of(rng.normal(size=(8, 2)))
    x = {node: np.array([1e6, 0.0]) for node in ring.benign}
    for _ in range(40):
        for node, benign, byzantine in hearings(flags, 2):
            best = min((x[other] for other in benign), key=lambda y: ring.loss(node, y))
            x[node] = ring.train(node, push(node, ring.loss(node, best)) if byzantine else best)
    error = math.sqrt(np.mean([ring.distance(y) ** 2 for y in x.values()]))
    assert error <= ring_error(flags, 2, ring.losses) * (1 + 1e-6)


# -- how near the bound is --------------------------------------------------------------------


@pytest.mark.parametrize(("connectivity", "losses"), [(4, ALIKE), (2, UNLIKE)])
def test_the_bound_is_within_three_times_what_is_measured(connectivity, losses) -> None:
    rows = list(table(24, connectivity, losses))
    assert [row.byzantine for row in rows] == list(range(breakdown(24, connectivity, losses) + 1))
    assert all(0.999999 <= row.ratio <= 3 for row in rows)
    assert all(math.isfinite(row.measured) for row in rows[:-1])
    assert math.isinf(rows[-1].bound)
    assert math.isinf(rows[-1].measured)  # so it is the true breakdown point


def test_every_second_node_byzantine_meets_the_bound_exactly() -> None:
    """Minimisers on both sides of x* by turns, one benign predecessor each: nothing is lost."""
    flags = [i % 2 == 1 for i in range(8)]
    for rate, slack in ((0.2, 0.0), (0.5, 0.0), (0.2, 2.0)):
        losses = replace(ALIKE, rate=rate, slack=slack)
        assert worst_case_error(flags, 2, losses) == pytest.approx(worst_error(losses), rel=1e-5)


@pytest.mark.parametrize(
    ("byzantine", "connectivity", "groups"), [(3, 2, 2), (3, 2, 3), (2, 2, 3), (2, 2, 4), (2, 3, 4)]
)
def test_no_random_search_beats_the_worst_byzantine_nodes(byzantine, connectivity, groups) -> None:
    """Directions that are drawn, kept if they hurt more, and drawn again near the best."""
    flags = evenly_spread(6, byzantine)
    heard = hearings(flags, connectivity)
    losses = replace(ALIKE, rate=0.4)
    known = ring_of_groups(heard, connectivity, losses, groups)
    functions, _ = grouped(heard, losses, groups)
    centres = np.zeros((6, groups))
    for node, function in functions.items():
        centres[node] = function.centre
    ring = Ring(flags, connectivity, losses, np.stack([np.eye(groups)] * 6), centres)
    rng = np.random.default_rng(1)

    def harm(directions: Array) -> float:
        def push(node: int, loss: float) -> Array:
            return ring.on_the_border(node, loss * (1 - 1e-12), directions[node])

        return ring.play(15, push, rng)[-1]

    best = rng.normal(size=(6, groups))
    found = harm(best)
    for trial in range(200):
        near = best + rng.normal(size=best.shape) * (1.0 if trial < 50 else 0.2)
        hurt = harm(near)
        if hurt > found:
            found, best = hurt, near
    assert found <= known * 1.05
    assert found >= known / 2  # a search that finds nothing would show nothing


# -- the formulas -----------------------------------------------------------------------------


def test_the_closed_form_by_hand() -> None:
    assert worst_error(ALIKE) == pytest.approx(9)  # (1 + 0.8)/(1 − 0.8)
    assert worst_error(replace(ALIKE, steps=2)) == pytest.approx(1.64 / 0.36)
    noise = replace(ALIKE, dissimilarity=0.0, slack=0.5)  # r² = q²(r² + 2ε)
    assert worst_error(noise) == pytest.approx(0.8 / 0.6)
    assert math.isinf(worst_error(UNLIKE))  # 0.545 · √3.4 > 1
    assert ring_error([False] * 5, 1, ALIKE) == pytest.approx(1)  # sequential training: ρ
    assert math.isinf(ring_error([True, True, False, False], 2, ALIKE))  # node 2 hears 0 and 1


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
