"""The Gaussian mechanism's exact account: how much noise an (ε, δ) takes, and what a noise gives.

What is released is f(s) + N(0, σ²I), and no two inputs s, s' have f(s) and f(s') further apart than
the sensitivity Δ.  It is (ε, δ)-differentially private if and only if

    δ ≥ Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ)

(B. Balle and Y.-X. Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018,
Theorem 8).  The textbook's σ = Δ √(2 ln(1.25/δ)) / ε is larger, and holds for ε < 1 only.
"""

import math
from collections.abc import Callable

from basil.errors import UserError

HALVINGS = 200  # more than a float has digits


def gaussian_delta(epsilon: float, sigma: float, sensitivity: float = 1.0) -> float:
    """The smallest δ for which noise of this σ is (ε, δ)-private: the formula above."""
    half, tilt = sensitivity / (2 * sigma), epsilon * sigma / sensitivity
    return _phi(half - tilt) - math.exp(epsilon + _log_phi(-half - tilt))


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The smallest σ that is (ε, δ)-private."""
    _check(epsilon, delta)
    enough = 1.0
    while gaussian_delta(epsilon, enough) > delta:
        enough *= 2
    return sensitivity * _smallest(lambda s: gaussian_delta(epsilon, s) <= delta, enough)


def gaussian_epsilon(delta: float, sigma: float, sensitivity: float = 1.0, times: int = 1) -> float:
    """The smallest ε at this δ, after so many releases that concern the same person.

    m releases with independent noise are one release in m times as many dimensions, of sensitivity
    √m Δ: so this, too, is exact.
    """
    _check(1.0, delta)
    distance = sensitivity * math.sqrt(times)
    enough = 1.0
    while gaussian_delta(enough, sigma, distance) > delta:
        enough *= 2
    return _smallest(lambda e: gaussian_delta(e, sigma, distance) <= delta, enough)


def _smallest(holds: Callable[[float], bool], enough: float) -> float:
    """By bisection: where a statement begins to hold that holds from there on."""
    low, high = 0.0, enough
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _phi(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def _log_phi(x: float) -> float:
    """log Φ(x), also where Φ(x) is smaller than any float (Mills' ratio, to five terms)."""
    if x > -25:
        return math.log(_phi(x))
    u = 1 / (x * x)
    series = 1 - u * (1 - 3 * u * (1 - 5 * u * (1 - 7 * u)))
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log(series)


def _check(epsilon: float, delta: float) -> None:
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon = {epsilon}: it must be more than 0")
    if not 0 < delta < 1:
        raise UserError(f"delta = {delta}: it must be between 0 and 1")
