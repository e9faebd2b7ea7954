"""Attacks by Byzantine nodes that know the rule: by hand, and against a literal twin."""

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from basil.attack import ATTACKS, View
from basil.attack.adaptive import DIRECTIONS
from basil.errors import UserError
from basil.learning.layout import layout_of
from basil.learning.models import mlp

from attack_helpers import D, told, view

PAIR = layout_of(torch.nn.Linear(1, 1))  # a weight and a bias, in one layer


def sent(name: str, seen: View, losses: object, **options: object) -> Tensor:
    found = told(name, seen, losses, **options)  # type: ignore[arg-type]
    assert isinstance(found, Tensor)
    return found


def two_samples(model: Tensor) -> Tensor:
    """(bias − 3)² and (bias − 5)²: at bias 4 + δ they differ from those at 4 by δ² ± 2 δ.

    So t = δ² / (√2 · 2 δ / √2) = δ / 2.
    """
    return torch.stack([(model[-1] - 3) ** 2, (model[-1] - 5) ** 2])


@pytest.mark.parametrize(("z", "shift"), [(3.1, 6.0), (1.6, 3.0), (1.0, 1.5), (0.5, 0.75)])
def test_brink_takes_the_longest_shift_that_does_not_show(z: float, shift: float) -> None:
    """A step of (3, 3) has root mean square 3; half of four turns is 6: 6, 3, 1½, ¾ are tried."""
    seen = view(chosen=torch.ones(2), honest=torch.full((2,), 4.0), layout=PAIR, lap=4)
    found = sent("brink", seen, two_samples, z=z, c=0.5)
    assert torch.equal(found, torch.tensor([4.0, 4.0 + shift]))


def test_who_would_be_seen_is_honest() -> None:
    seen = view(chosen=torch.ones(2), honest=torch.full((2,), 4.0), layout=PAIR, lap=4)
    assert torch.equal(sent("brink", seen, two_samples, z=0.2, c=0.5), seen.honest)
    unseen = sent("brink", seen, two_samples, z=0.2, c=0.5, tries=5)  # ⅜ has t = 0.19
    assert torch.equal(unseen, torch.tensor([4.0, 4.375]))
    garbage = sent("brink", seen, lambda model: torch.full((2,), torch.inf))
    assert torch.equal(garbage, seen.honest)


def test_ascent_by_hand() -> None:
    """From (1, 1) to (4, 2): back by (3, 1), of which no more than √5 is allowed."""
    seen = view(chosen=torch.ones(2), honest=torch.tensor([4.0, 2.0]), layout=PAIR, lap=4)
    found = sent("brink", seen, lambda model: torch.zeros(2), c=0.25, direction="ascent")
    torch.testing.assert_close(found, torch.tensor([4 - math.sqrt(5), 1.0]))


def half_widths(seen: View, c: float) -> list[float]:
    """c·N·s for every coordinate, one number at a time."""
    step = (seen.honest.double() - seen.chosen.double()).tolist()
    widths = []
    for layer in seen.layout.layers:
        part = step[layer]
        s = math.sqrt(statistics.fmean(x * x for x in part))
        widths += [c * seen.lap * s] * len(part)
    return widths


def brink_literally(
    seen: View, base: list[list[float]], shift: list[float], z: float, tries: int
) -> list[float]:
    """Samples are linear functions of the model and its square: losses by plain sums."""
    x = seen.honest.double().tolist()

    def losses(model: list[float]) -> list[float]:
        return [sum(w * m + m * m / 50 for w, m in zip(row, model, strict=True)) for row in base]

    unshifted = losses(x)
    for i in range(tries):
        model = [a + u / 2**i for a, u in zip(x, shift, strict=True)]
        gaps = [a - b for a, b in zip(losses(model), unshifted, strict=True)]
        if statistics.fmean(gaps) <= z * statistics.stdev(gaps) / math.sqrt(len(gaps)):
            return model
    return x


@settings(max_examples=60, deadline=None)
@given(
    direction=st.sampled_from(sorted(DIRECTIONS)),
    seed=st.integers(0, 10**6),
    z=st.floats(0.0, 4.0),
    c=st.floats(0.05, 2.0),
    tries=st.integers(1, 6),
)
def test_brink_against_a_literal_twin(
    direction: str, seed: int, z: float, c: float, tries: int
) -> None:
    seen = view(seed=seed, lap=7)
    base = torch.randn(5, D, generator=torch.Generator().manual_seed(seed)).double()

    def losses(model: Tensor) -> Tensor:
        return base @ model.double() + model.double().square().sum() / 50

    found = sent("brink", seen, losses, direction=direction, z=z, c=c, tries=tries)
    widths = half_widths(seen, c)
    if direction == "coordinate":
        shift = [0.0] * (D - 1) + widths[-1:]
    elif direction == "signs":
        signs = seen.shared["signs"].tolist()
        assert set(signs) <= {-1.0, 1.0}
        shift = [sign * width for sign, width in zip(signs, widths, strict=True)]
    else:
        back = [c * 7 * float(a - b) for a, b in zip(seen.chosen, seen.honest, strict=True)]
        shift = [max(-w, min(w, u)) for u, w in zip(back, widths, strict=True)]
    expected = brink_literally(seen, base.tolist(), shift, z, tries)
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-4, rtol=1e-4)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), hidden=st.integers(1, 9), c=st.floats(0.01, 3.0))
def test_edge_is_a_lap_away_from_the_next_benign_receiver(seed: int, hidden: int, c: float) -> None:
    layout = layout_of(mlp((3,), 2, hidden=hidden))
    draw = torch.Generator().manual_seed(seed)
    benign = {j: torch.randn(layout.size, generator=draw) for j in (10, 11)}
    lies = frozenset({1, 2})
    seen = view(seed=seed, layout=layout, benign=benign, receivers=(2, 11, 10), colluders=lies)
    found = ATTACKS["edge"](seen, c=c)
    assert isinstance(found, Tensor)
    away = (found - benign[11]).abs()
    torch.testing.assert_close(away, torch.tensor(half_widths(seen, c)), atol=1e-5, rtol=1e-4)


def test_creep_by_hand() -> None:
    """From (1, 1) to (4, 2): no coordinate changes by more than 3, twice that is a bias of 7."""
    seen = view(chosen=torch.ones(2), honest=torch.tensor([4.0, 2.0]), layout=PAIR)
    assert torch.equal(ATTACKS["creep"](seen), torch.tensor([4.0, 7.0]))  # type: ignore[arg-type]
    assert torch.equal(ATTACKS["creep"](seen, kin=1.0, coordinate=0), torch.tensor([4.0, 2.0]))  # type: ignore[arg-type]


def test_among_byzantine_nodes_the_edge_is_honest() -> None:
    seen = view(benign={10: torch.zeros(D)}, receivers=(2, 3), colluders=frozenset({1, 2, 3}))
    assert torch.equal(ATTACKS["edge"](seen), seen.honest)  # type: ignore[arg-type]


def test_all_byzantine_nodes_lean_the_same_way_in_every_round() -> None:
    """On one machine or on several, which share nothing but the seed."""
    benign = [torch.zeros(D)]
    first = view(benign=benign, k=1)
    elsewhere = View(**{**vars(view(benign=benign, k=8)), "node": 2})
    together = View(**{**vars(view(benign=benign, k=5)), "node": 3, "shared": first.shared})
    signs = [ATTACKS["edge"](seen).sign() for seen in (first, elsewhere, together)]  # type: ignore[union-attr]
    assert torch.equal(signs[0], signs[1])
    assert torch.equal(signs[0], signs[2])
    other = ATTACKS["edge"](view(benign=benign, seed=1)).sign()  # type: ignore[union-attr]
    assert not torch.equal(signs[0], other)
    flat = torch.zeros(2)
    for seen in (first, elsewhere):
        shift = sent("brink", seen, lambda model: flat, direction="signs") - seen.honest
        assert torch.equal(shift.sign(), signs[0])


def test_stall_is_the_mean_and_half_a_turn_aside() -> None:
    """The mean is (2, 2), the turn (3, −4): 5 long."""
    benign = [torch.tensor([1.0, 5.0]), torch.tensor([3.0, 0.0]), torch.tensor([2.0, 1.0])]
    chosen, honest = torch.tensor([10.0, 10.0]), torch.tensor([13.0, 6.0])
    lies = []
    for seed in (0, 1):
        seen = view(benign=benign, chosen=chosen, honest=honest, layout=PAIR, seed=seed)
        lie = ATTACKS["stall"](seen)
        assert isinstance(lie, Tensor)
        assert (lie - torch.tensor([2.0, 2.0])).norm() == pytest.approx(2.5)
        lies.append(lie)
    assert not torch.equal(*lies)
    with pytest.raises(UserError, match=r"attack\.kin"):
        ATTACKS["stall"](seen, kin=0.5)
