"""The Gaussian mechanism's account, against the definition of (ε, δ) itself."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basil.errors import UserError
from basil.theory.privacy import gaussian_delta, gaussian_epsilon, gaussian_sigma


def delta_by_integration(epsilon: float, sigma: float, distance: float) -> float:
    """max over events A of P(A) − e^ε Q(A): the integral of what p has more than e^ε q.

    p and q are N(Δ, σ²) and N(0, σ²): noise has no direction, so two inputs Δ apart differ in one.
    """
    x = np.linspace(-40 * sigma, 40 * sigma + distance, 2_000_001)
    p, q = (np.exp(-(((x - m) / sigma) ** 2) / 2) for m in (distance, 0.0))
    more = np.maximum(p - np.exp(epsilon) * q, 0) / (sigma * math.sqrt(2 * math.pi))
    return float(np.trapezoid(more, x))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 12.0])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("distance", [0.5, 2.0])
def test_delta_is_the_definitions(epsilon, sigma, distance) -> None:
    exact = delta_by_integration(epsilon, sigma, distance)
    assert gaussian_delta(epsilon, sigma, distance) == pytest.approx(exact, rel=1e-6, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 50), st.floats(1e-9, 0.1), st.floats(0.01, 100))
def test_sigma_and_epsilon_undo_each_other(epsilon, delta, distance) -> None:
    sigma = gaussian_sigma(epsilon, delta, distance)
    assert gaussian_delta(epsilon, sigma, distance) <= delta * (1 + 1e-9)
    assert gaussian_delta(epsilon, sigma * 0.999, distance) > delta  # less noise is not enough
    assert gaussian_epsilon(delta, sigma, distance) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_the_textbooks_sigma_is_larger(epsilon, delta) -> None:
    textbook = math.sqrt(2 * math.log(1.25 / delta)) / epsilon  # Dwork and Roth 2014, Theorem A.1
    assert gaussian_sigma(epsilon, delta) < textbook


def test_a_very_large_epsilon_is_still_a_number() -> None:
    """e^ε alone is more than a float holds.  σ → Δ/√(2ε): from Δ/2σ − εσ/Δ = 0, where δ = ½."""
    sigma = gaussian_sigma(1e6, 0.4)
    assert sigma == pytest.approx(1 / math.sqrt(2e6), rel=1e-2)
    assert gaussian_sigma(1e6, 1e-5) > sigma


def test_releases_about_one_person_compose_as_one_that_is_further_away() -> None:
    """m independent noises: the distance in m·d dimensions is √m Δ; for m = 4, twice."""
    epsilon = gaussian_epsilon(1e-5, 3.0, 1.0, times=4)
    assert delta_by_integration(epsilon, 3.0, 2.0) == pytest.approx(1e-5, rel=1e-4)
    assert gaussian_epsilon(1e-5, 3.0) < epsilon < 4 * gaussian_epsilon(1e-5, 3.0)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.1), (1.0, 0.0), (1.0, 1.0), (-1.0, 0.1)])
def test_what_cannot_be_asked_for_is_said(epsilon, delta) -> None:
    with pytest.raises(UserError, match="it must be"):
        gaussian_sigma(epsilon, delta)
