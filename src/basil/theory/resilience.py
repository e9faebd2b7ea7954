"""How likely S predecessors are too few: Proposition 2, its bound and the exact value.

The event is always the one of App. A: *S Byzantine nodes come in a row on the ring*.  Then the
benign node behind them listens to nobody but Byzantine nodes.  The order of the ring is a uniformly
random permutation (§III-A), so all C(N, b) ways to place b Byzantine nodes are equally likely.
With S = 0 nobody listens to anybody, and every formula calls that a failure.

Exact values come from cutting the ring at its z = N − b benign nodes.  The lengths of the z gaps
between them are a uniformly random composition of b into z parts, and the event says that some gap
is S or longer; inclusion–exclusion over the set of long gaps gives

    P = Σ_{j≥1} (−1)^{j+1} C(z, j) C(N−1−jS, z−1) / C(N−1, z−1).
"""

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from typing import Final, NamedTuple

from basil.errors import UserError
from basil.theory import _checks

# 50 digits: the alternating sum below cancels at most 18 of them, and a float keeps 17.
PRECISE: Final = Context(prec=50, Emin=MIN_EMIN, Emax=MAX_EMAX)
_CERTAIN = 40
_CHUNK = 32
_Z_95 = 1.959963984540054


class Estimate(NamedTuple):
    """A simulated probability with its Wilson 95 % interval."""

    estimate: float
    low: float
    high: float


def disconnected(byzantine_flags: Sequence[bool], connectivity: int) -> bool:
    """Whether this very ring has S Byzantine nodes in a row; the last node precedes the first."""
    _checks.predecessors(len(byzantine_flags), connectivity)
    if connectivity == 0:
        return True
    run = 0
    for lap in (byzantine_flags, byzantine_flags):  # the second lap finds the run across the seam
        for byzantine in lap:
            run = run + 1 if byzantine else 0
            if run >= connectivity:
                return True
    return False


def failure_bound(nodes: int, byzantine: int, connectivity: int) -> float:
    """Prop. 2: P ≤ N ∏_{i<S} (b−i)/(N−i) = b! (N−S)! / ((b−S)! (N−1)!).

    A union bound over the N places where the run may start: it can exceed 1, and then says nothing.
    Erratum: for N=100, b=33 the text's 4e-7 (S=15) and 5.34e-4 (S=10) are 4.09e-7 and 5.35e-4.
    """
    _checks.ring(nodes, byzantine, connectivity)
    with localcontext(PRECISE):
        return float(nodes * falling_ratio(byzantine, nodes, connectivity))


def failure_exact(nodes: int, byzantine: int, connectivity: int) -> float:
    """The probability of the event to the precision of a float, for up to 10⁶ nodes and more.

    Sums the series at the head of this file in 50-digit decimals, each term from the one before:
    at most b multiplications in all.  Its first term μ is the expected number of long gaps.  Gaps
    are negatively associated (independent geometric lengths, given their sum), hence
    P(no long gap) ≤ e^−μ and the j-th term is at most μ^j/j!.  So where μ > 40 the nearest float
    is 1, and elsewhere cancellation takes at most 18 of the 50 digits.
    """
    _checks.ring(nodes, byzantine, connectivity)
    if connectivity == 0:
        return 1.0
    benign = nodes - byzantine
    with localcontext(PRECISE):
        total, term = Decimal(0), Decimal(1)
        for j in range(1, min(benign, byzantine // connectivity) + 1):
            taken = (j - 1) * connectivity
            term *= falling_ratio(byzantine - taken, nodes - 1 - taken, connectivity)
            term = term * (benign - j + 1) / j
            if j == 1 and term > _CERTAIN:
                return 1.0
            total += term if j % 2 else -term
            if term < total * Decimal("1e-30"):
                break
        return float(total)


def failure_simulated(
    nodes: int, byzantine: int, connectivity: int, trials: int, seed: int, groups: int = 1
) -> Estimate:
    """The share of random rings that have S Byzantine nodes in a row, with its Wilson interval.

    With several groups, each has a ring of its own, and one that fails is enough (Prop. 5).
    """
    _checks.population(nodes, byzantine)
    size = _checks.group_size(nodes, groups)
    _checks.predecessors(size, connectivity)
    _checks.at_least("trials", trials, 1)
    draw = random.Random(seed)
    flags = [place < byzantine for place in range(nodes)]
    failures = 0
    for _ in range(trials):
        draw.shuffle(flags)
        rings = (flags[start : start + size] for start in range(0, nodes, size))
        failures += any(disconnected(ring, connectivity) for ring in rings)
    return _wilson(failures, trials)


def smallest_connectivity(nodes: int, byzantine: int, failure: float, exact: bool = True) -> int:
    """The smallest S whose failure probability is at most `failure`.

    `exact` asks `failure_exact`, otherwise Prop. 2's bound, which never gives a smaller S.
    S = b + 1 never fails, so there always is one.
    """
    _checks.population(nodes, byzantine)
    if not 0 < failure < 1:
        raise UserError(
            f"failure = {failure}: it must lie between 0 and 1, both excluded; "
            f"S = {byzantine + 1} never fails"
        )
    if byzantine > nodes - 2:
        raise UserError(
            f"byzantine = {byzantine}: among {nodes} nodes a single benign one has nobody to "
            f"learn from; at most {nodes - 2} can be Byzantine"
        )
    probability = failure_exact if exact else failure_bound
    return smallest(lambda s: probability(nodes, byzantine, s) <= failure, byzantine + 1)


def smallest(suffices: Callable[[int], bool], most: int) -> int:
    """The smallest S ≤ `most` that suffices, as `most` and every larger one does.

    By doubling and then halving: what a probability takes to compute grows with S.
    """
    too_few, enough = 0, 1
    while enough < most and not suffices(enough):
        too_few, enough = enough, min(2 * enough, most)
    return too_few + 1 + bisect_left(range(too_few + 1, enough), True, key=suffices)


def falling_ratio(top: int, bottom: int, count: int) -> Decimal:
    """∏_{i<count} (top−i)/(bottom−i) in the current decimal context."""
    if count > bottom - top:  # the same with fewer factors: top and bottom − count change places
        top, count = bottom - count, bottom - top
    ratio = Decimal(1)
    for start in range(0, count, _CHUNK):
        width = min(_CHUNK, count - start)
        if top - start < width:
            return Decimal(0)
        ratio *= math.perm(top - start, width)
        ratio /= math.perm(bottom - start, width)
    return ratio


def _wilson(successes: int, trials: int) -> Estimate:
    share = successes / trials
    shrink = 1 + _Z_95**2 / trials
    centre = (share + _Z_95**2 / (2 * trials)) / shrink
    spread = share * (1 - share) / trials + (_Z_95 / (2 * trials)) ** 2
    half = _Z_95 * math.sqrt(spread) / shrink
    # min and max: at 0 and 1 the interval touches the estimate, and rounding must not part them
    return Estimate(share, max(0.0, min(centre - half, share)), min(1.0, max(centre + half, share)))
