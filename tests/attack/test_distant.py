"""Min-Max and Min-Sum: by hand, and against the authors' search by halving."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from basil import rng
from basil.errors import UserError
from basil.learning.layout import layout_of

from attack_helpers import D, vector, view

PAIR = layout_of(torch.nn.Linear(1, 1))  # a model of two numbers
SQUARE = [torch.tensor(x) for x in ([0.0, 0.0], [4.0, 0.0], [0.0, 3.0], [4.0, 3.0])]


def test_min_max_by_hand() -> None:
    """The corners of a 4 × 3 rectangle, x̄ to the right: the update is to the left, p to the right.

    From (2, 1.5), the corner that comes to be 5 away, the diagonal, is a left one: √(25 − 1.5²).
    """
    seen = view(benign=SQUARE, chosen=torch.tensor([9.0, 1.5]), layout=PAIR)
    right = (25 - 1.5**2) ** 0.5
    for direction in ("unit", "sign"):
        found = vector("min-max", seen, direction=direction)
        assert torch.allclose(found, torch.tensor([right, 1.5]), atol=1e-5)


def test_min_sum_by_hand() -> None:
    """Each corner has 16 + 9 + 25 = 50; the mean 4 · 6.25, so 4 γ² = 25."""
    seen = view(benign=SQUARE, chosen=torch.tensor([9.0, 1.5]), layout=PAIR)
    found = vector("min-sum", seen, direction="unit")
    assert torch.allclose(found, torch.tensor([4.5, 1.5]), atol=1e-5)


def halved(keeps: Callable[[float], bool]) -> float:
    """Algorithm 1 of the publication, to the end."""
    gamma, step, good = 10.0, 10.0, 0.0
    for _ in range(60):
        if keeps(gamma):
            good, gamma = gamma, gamma + step / 2
        else:
            gamma -= step / 2
        step /= 2
    return good


@settings(max_examples=20, deadline=None)
@given(
    r=st.integers(2, 7),
    seed=st.integers(0, 10**6),
    direction=st.sampled_from(["std", "unit", "sign"]),
)
def test_the_search_by_halving_agrees(r: int, seed: int, direction: str) -> None:
    draw = rng.torch_stream(seed, "benign")
    models = [torch.randn(D, generator=draw) for _ in range(r)]
    table = torch.stack(models).double()
    squares = torch.cdist(table, table).square()
    seen, mean = view(benign=models, seed=seed), table.mean(0)
    update = mean - seen.chosen.double()
    p = {
        "std": -table.std(0, correction=0),
        "unit": -update / update.norm(),
        "sign": -update.sign(),
    }[direction]

    def to_all(gamma: float) -> Tensor:
        return (mean + gamma * p - table).square().sum(1)

    far = halved(lambda gamma: bool(to_all(gamma).max() <= squares.max()))
    sums = halved(lambda gamma: bool(to_all(gamma).sum() <= squares.sum(1).max()))
    for name, gamma in (("min-max", far), ("min-sum", sums)):
        if gamma < 19:  # as far as the search reaches
            found = vector(name, seen, direction=direction).double()
            assert torch.allclose(found, mean + gamma * p, atol=1e-3), name


@pytest.mark.parametrize("name", ["min-max", "min-sum"])
def test_where_all_are_alike_so_is_the_lie(name: str) -> None:
    same = torch.arange(2.0)
    for direction in ("std", "unit", "sign"):
        seen = view(benign=[same, same.clone()], chosen=same, layout=PAIR)
        assert torch.equal(vector(name, seen, direction=direction), same)
    with pytest.raises(UserError, match=r"attack\.direction = 'up': one of std, unit, sign"):
        vector(name, seen, direction="up")
