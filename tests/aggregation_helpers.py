"""Small stacks of models, and plain arithmetic to compare aggregation rules with."""

import math
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor


@st.composite
def stacks(draw: Callable[..., Any], least: int = 1) -> tuple[Tensor, Tensor]:
    m, d = draw(st.integers(least, 9)), draw(st.integers(1, 6))
    seed = draw(st.integers(0, 10**6))
    numbers = torch.randn(m + 1, d, generator=torch.Generator().manual_seed(seed))
    return numbers[0], numbers[1:]


def apart(a: list[float], b: list[float]) -> float:
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def same(found: Tensor, expected: list[float]) -> bool:
    return torch.allclose(found, torch.tensor(expected), atol=1e-5)
