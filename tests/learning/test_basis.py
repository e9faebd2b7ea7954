"""Bases and orthogonal factors beside torch's decompositions."""

import pytest
import torch
from torch import Tensor

from basil.learning.symmetry.basis import orthogonal_factor, orthonormal

EYE = torch.eye(6, dtype=torch.float64)


def matrices(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


@pytest.mark.parametrize("spread", [1.0, 1e-2, 1e-4])
def test_the_orthogonal_factor_is_that_of_the_singular_value_decomposition(spread: float) -> None:
    left, _, right = torch.linalg.svd(matrices(20, 6, 6))
    values = torch.logspace(0, 1, 6, dtype=torch.float64) * torch.linspace(1, spread, 6)
    graded = left @ torch.diag(values) @ right
    assert torch.allclose(orthogonal_factor(graded), left @ right, atol=1e-9)


@pytest.mark.parametrize("alike", [1.0, 1e-3, 1e-6])
def test_a_basis_is_orthonormal_and_spans_the_rows_however_alike_they_are(alike: float) -> None:
    rows = matrices(20, 1, 40) + alike * matrices(20, 6, 40, seed=1)
    basis = orthonormal(rows)
    assert torch.allclose(basis @ basis.mT, EYE, atol=1e-12)
    reference = torch.linalg.qr(rows.mT).Q
    assert torch.allclose(basis.mT @ basis, reference @ reference.mT, atol=1e-9 / alike)


def test_a_row_of_zeros_stays_one_and_the_rest_is_a_basis() -> None:
    rows = matrices(3, 6, 40)
    rows[:, 2] = 0
    expected = EYE.clone()
    expected[2, 2] = 0
    basis = orthonormal(rows)
    assert torch.allclose(basis @ basis.mT, expected, atol=1e-12)
    factor = orthogonal_factor(matrices(3, 6, 40, seed=1) @ basis.mT)
    assert torch.allclose(factor.mT @ factor, expected, atol=1e-9)
