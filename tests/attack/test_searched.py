"""Attacks that try out the receiver's rule: against byzfl's, by hand, and on real receivers."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from basil import rng
from basil.attack import ATTACKS
from basil.attack.omniscient import largest_z
from basil.attack.rehearsal import outcome
from basil.attack.searched import line_maximum
from basil.learning.layout import layout_of
from basil.protocol.graph.aggregate import median, nearest_mean
from basil.protocol.graph.bridge import bridge_median
from basil.protocol.graph.nna import nna
from basil.protocol.graph.ubar import ubar

from attack_helpers import D, view
from ring_helpers import Quadratic, plain_node

PAIR = layout_of(torch.nn.Linear(1, 1))


def models(r: int, seed: int) -> list[Tensor]:
    draw = rng.torch_stream(seed, "benign")
    return [torch.randn(D, generator=draw) for _ in range(r)]


def complete(r: int, b: int) -> dict[int, dict[int, float]]:
    """Benign nodes 10, 11, … and Byzantine 1, 2, …, all neighbours, with equal weights."""
    everybody = (*range(10, 10 + r), *range(1, 1 + b))
    return {j: {k: 1 / (r + b) for k in everybody if k != j} for j in everybody}


@pytest.mark.parametrize(("seed", "b"), [(0, 1), (1, 1), (0, 3), (1, 3)])
def test_the_optimal_attacks_are_byzfls(byzfl: Any, seed: int, b: int) -> None:
    """Against a median, which makes no difference between oneself and others."""
    benign = models(7, seed)

    def median_of_all(j: int, sent: Mapping[int, Tensor]) -> Tensor:
        return median(benign[j - 10], torch.stack(list(sent.values())))

    seen = view(
        benign=benign,
        weights=complete(7, b),
        colluders=frozenset(range(1, b + 1)),
        receivers=(10, 12, 2),
        outcome=median_of_all,
    )
    stack = torch.stack(benign)
    how: dict[str, Any] = {"agg": byzfl.Median(), "pre_agg_list": [], "f": b, "evals": 20}
    alie = ATTACKS["optimal-alie"](seen)
    assert isinstance(alie, dict)
    assert torch.equal(alie[2], seen.honest)
    # byzfl goes up from the mean and we go down: the same, mirrored at 0.
    expected = -byzfl.Optimal_ALittleIsEnough(**how)(-stack)
    for j in (10, 12):
        torch.testing.assert_close(alie[j], expected, atol=1e-4, rtol=1e-4)
    ipm = ATTACKS["optimal-ipm"](seen)
    assert isinstance(ipm, dict)
    for j in (10, 12):
        x = benign[j - 10]
        expected = byzfl.Optimal_InnerProductManipulation(**how)(stack - x)
        torch.testing.assert_close(ipm[j] - x, expected, atol=1e-4, rtol=1e-4)


def test_the_line_search_by_hand() -> None:
    """From 0 by 10, 20, 40: 70 is too far; then by 32, 25.6, … to the highest point below."""
    asked = []

    def hill(x: float) -> float:
        asked.append(x)
        return 100 - abs(x - 50)

    best = line_maximum(hill, 6)
    assert asked == [0.0, 10.0, 30.0, 70.0, 62.0, pytest.approx(62 + 25.6)]
    assert best == 62.0


def test_where_a_rule_cannot_be_tried_out_the_length_is_fixed() -> None:
    benign = models(4, 0)
    seen = view(benign=benign, weights=complete(4, 1))
    stack, x = torch.stack(benign), benign[0]
    mean, sigma = stack.mean(0), stack.std(0, correction=0)
    for name, expected in (
        ("optimal-alie", mean - largest_z(5, 1) * sigma),
        ("optimal-ipm", x - 0.1 * (mean - x)),
    ):
        lies = ATTACKS[name](seen)
        assert isinstance(lies, dict)
        assert torch.allclose(lies[10], expected, atol=1e-6)
    as_ever, lies = ATTACKS["dissensus"](seen), ATTACKS["optimal-dissensus"](seen)
    assert isinstance(as_ever, dict)
    assert isinstance(lies, dict)
    assert torch.allclose(lies[11], as_ever[11], atol=1e-5)


def test_spectral_by_hand() -> None:
    """A path 10 – 11 – 12: its Fiedler vector is (1, 0, −1)/√2, so 11 is told where it is.

    At 0, 5 and 4 it lies along −4/√2; 10 is told 0 − 2c, and 12 is told 4 + 2c.
    """
    benign = {10: torch.tensor([0.0, 1.0]), 11: torch.tensor([5.0, 1.0])}
    benign[12] = torch.tensor([4.0, 1.0])
    weights = {10: {11: 0.3, 1: 0.3}, 11: {10: 0.3, 12: 0.3, 1: 0.3}, 12: {11: 0.3, 1: 0.3}}
    seen = view(benign=benign, weights=weights, receivers=(10, 11, 12), layout=PAIR)
    lies = ATTACKS["spectral"](seen, factor=3.0)
    assert isinstance(lies, dict)
    for j, x in ((10, -6.0), (11, 5.0), (12, 10.0)):
        assert torch.allclose(lies[j], torch.tensor([x, 1.0]), atol=1e-5)
    fixed = ATTACKS["spectral"](seen)
    assert isinstance(fixed, dict)
    assert torch.allclose(fixed[10], torch.tensor([-2.0, 1.0]), atol=1e-5)


# -- rehearsals ----------------------------------------------------------------------------------

NUMBERS = {1: 1.0, 2: 2.0, 3: 3.0, 4: 40.0}


def rehearsed(scheme: Any, sent: dict[int, float], own: float = 0.0) -> Tensor | None:
    compute = Quadratic((0.0,) * 5, x0=7.0).compute()
    node = plain_node(0, compute, neighbours=(1, 2, 3, 4), rounds=9, byzantine=1)
    return outcome(
        node, scheme, 5, torch.tensor([own]), {j: torch.tensor([x]) for j, x in sent.items()}
    )


def test_a_rehearsal_ends_with_what_the_rule_makes() -> None:
    made = rehearsed(nna, NUMBERS)
    assert made is not None
    stack = torch.tensor([[x] for x in NUMBERS.values()])
    assert torch.equal(made, nearest_mean(torch.zeros(1), stack, 3))  # (0 + 1 + 2 + 3) / 4
    assert rehearsed(bridge_median, NUMBERS) == pytest.approx(2.0)  # of 0, 1, 2, 3, 40
    assert rehearsed(bridge_median, {1: 1.0, 2: 2.0}) == pytest.approx(1.0)  # two are silent


def test_a_rule_that_asks_for_losses_cannot_be_rehearsed() -> None:
    assert rehearsed(ubar, NUMBERS) is None
