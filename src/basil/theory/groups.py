"""How likely some ring of several fails: Proposition 5 and §V-C, as a bound and exactly.

N nodes are split at random into G rings of n = N/G.  The event is that of App. A on *some* of them:
S Byzantine nodes in a row.  A group without any benign node counts as failed.

Exact values come from marking long gaps, as in `resilience`: a benign node with S Byzantine ones
before it is a block of S + 1 places.  On a ring of n there are n/(n−jS) C(n−jS, j) ways to place j
blocks, so by inclusion–exclusion the safe placements have the generating function

    A(x) = Σ_j (−1)^j  n/(n−jS) C(n−jS, j)  x^{jS} (1+x)^{n−j(S+1)}  −  x^n,

x marking Byzantine nodes; x^n is the ring without a benign node.  G rings have A(x)^G, of which the
coefficient of x^b, divided by C(N, b), is the probability that all are safe.
"""

import math
from collections.abc import Iterator
from decimal import Context, Decimal, localcontext

from basil.errors import UserError
from basil.theory import _checks
from basil.theory.resilience import (
    PRECISE,
    failure_bound,
    falling_ratio,
    smallest,
    smallest_connectivity,
)

_CERTAIN = 40  # e^−40: what is less likely than that does not change the float 1.0
_LEFT = 25  # digits that must be left after cancellation; a float keeps 17
_NEGLIGIBLE = Decimal("1e-30")


def group_failure_bound(nodes: int, byzantine: int, groups: int, connectivity: int) -> float:
    """Prop. 5: bounds P(*some* of G equal groups has S Byzantine nodes in a row on its own ring).

        P ≤ G Σ_i ( n ∏_{s<S} max(i−s, 0)/(n−s) ) C(b, i) C(N−b, n−i) / C(N, n),  n = N/G

    Erratum: the paper prints N − s for n − s.  With N=400, b=60, n=100 the right denominator gives
    1.17e-6 for S=10 (text: ~1e-6; as printed: 7.8e-13) and 5.0e-4 for S=7 (text: ~1e-4).

    The sum is a factorial moment of the hypergeometric distribution, E[∏(b_g−s)/(n−s)] =
    ∏(b−s)/(N−s), so the bound is that of Prop. 2 for the whole ring, whatever G is.
    """
    _group_size(nodes, byzantine, groups, connectivity)
    return failure_bound(nodes, byzantine, connectivity)


def one_group_failure(nodes: int, byzantine: int, groups: int, connectivity: int) -> float:
    """P(a *given* group of n = N/G nodes has S Byzantine nodes in a row on its own ring), exactly.

    With S = n − 1 the event is "n − 1 or n Byzantine nodes in this group", so G times this is the
    bound of §V-C, Case 1, for N=100, b=33: 5.2e-10 for n=20; erratum: 1.5e-3 for n=10 (text:
    ~1.2e-4).  To the precision of a float, as `group_failure_exact`.
    """
    size = _group_size(nodes, byzantine, groups, connectivity)
    return _some_ring_fails(nodes, byzantine, connectivity, size, rings=1)


def group_failure_exact(nodes: int, byzantine: int, groups: int, connectivity: int) -> float:
    """P(*some* of G equal groups has S Byzantine nodes in a row on its own ring), exactly.

    This is the event that Prop. 5 bounds; it contains "all S nodes that pass a group's model on are
    Byzantine", which would cut the ring of groups.  The series at the head of this file in decimals
    of at least 50 digits, for up to 10⁶ nodes and more.  It alternates, so the first term left out
    bounds what is missing; where terms grow so large that fewer than 25 digits would survive their
    cancellation, it is summed again with more.
    """
    size = _group_size(nodes, byzantine, groups, connectivity)
    return _some_ring_fails(nodes, byzantine, connectivity, size, rings=groups)


def smallest_group_connectivity(
    nodes: int, byzantine: int, groups: int, failure: float
) -> int | None:
    """The smallest S with which some of G groups fails with a probability of at most `failure`.

    None where even S = n − 1, all of a group, is not enough: the group is too small.
    """
    size = _group_size(nodes, byzantine, groups, 0)
    if groups == 1:
        return smallest_connectivity(nodes, byzantine, failure)
    if not 0 < failure < 1:
        raise UserError(f"failure = {failure}: it must lie between 0 and 1, both excluded")

    def suffices(connectivity: int) -> bool:
        return group_failure_exact(nodes, byzantine, groups, connectivity) <= failure

    most = size - 1
    if byzantine <= nodes - 2:  # Prop. 5's bound is Prop. 2's: what suffices there suffices here
        most = min(most, smallest_connectivity(nodes, byzantine, failure, exact=False))
    with localcontext(PRECISE):  # S given places are all Byzantine too often: spare the series
        hopeless = most < 1 or falling_ratio(byzantine, nodes, most) > failure
    return None if hopeless or not suffices(most) else smallest(suffices, most)


def _group_size(nodes: int, byzantine: int, groups: int, connectivity: int) -> int:
    _checks.population(nodes, byzantine)
    size = _checks.group_size(nodes, groups)
    _checks.predecessors(size, connectivity)
    return size


def _some_ring_fails(nodes: int, byzantine: int, connectivity: int, size: int, rings: int) -> float:
    """P(some of these rings of `size` nodes has S Byzantine nodes in a row)."""
    if connectivity == 0 or _all_but_certain(nodes, byzantine, connectivity, size, rings):
        return 1.0
    digits = PRECISE.prec
    while True:
        context = Context(prec=digits, Emin=PRECISE.Emin, Emax=PRECISE.Emax)
        with localcontext(context):
            total, largest = _series(nodes, byzantine, connectivity, size, rings)
            lost = largest.adjusted() - total.adjusted() if total else 0
        if lost <= digits - _LEFT:
            return float(total)
        digits = lost + 2 * _LEFT


def _all_but_certain(nodes: int, byzantine: int, connectivity: int, size: int, rings: int) -> bool:
    """Whether the rings are safe with a probability below e^−40.

    Were each node Byzantine by itself with probability p = b/N, a row of n would be free of runs
    with at most (1 − (1−p) p^S)^{n−S+1}, since R_n = R_{n−1} − (1−p) p^S R_{n−S−1} for the
    probability R_n, and with at most 1 − p^S, S given places; and just b of N are Byzantine with at
    least 1/√(8Np(1−p)).
    """
    share = byzantine / nodes
    runs = max(1, (size - connectivity + 1) * (1 - share)) * share**connectivity
    return rings * runs > _CERTAIN + math.log(8 * nodes + 1) / 2


def _series(
    nodes: int, byzantine: int, connectivity: int, size: int, rings: int
) -> tuple[Decimal, Decimal]:
    """1 − [x^b] A(x)^G (1+x)^{N−Gn} / C(N, b), and the largest term of the sum."""
    total = largest = Decimal(0)
    for full in range(min(rings, byzantine // size) + 1):  # rings without a benign node
        taken = full * size
        ways = math.comb(rings, full)
        if full and ways * (Decimal(byzantine) / nodes) ** taken < total * _NEGLIGIBLE:
            break
        term = ways * falling_ratio(byzantine, nodes, taken)
        last = Decimal(0)
        left, benign = byzantine - taken, nodes - byzantine
        for blocks, placed in enumerate(_placements(size, connectivity, rings - full)):
            added = term * placed
            largest = max(largest, added)
            if blocks or full:
                total += added if (blocks + full) % 2 else -added
            if blocks and added <= last and added < abs(total) * _NEGLIGIBLE:
                break
            last = added
            if left < connectivity or not benign:
                break
            places = left + benign
            term *= falling_ratio(left, places, connectivity)
            term = term * benign / (places - connectivity)
            left, benign = left - connectivity, benign - 1
    return total, largest


def _placements(size: int, connectivity: int, rings: int) -> Iterator[int]:
    """In how many ways 0, 1, 2, … blocks of S + 1 places lie on these rings of n."""
    one = [
        size * math.comb(size - j * connectivity, j) // (size - j * connectivity)
        for j in range(min(size // (connectivity + 1), 1) + 1)
    ]
    # The coefficients of (Σ c_j y^j)^G one after the other: Miller's recurrence, c_0 = 1.
    power = [1]
    yield 1
    for total in range(1, rings * (size // (connectivity + 1)) + 1):
        if total <= size // (connectivity + 1) and total == len(one):
            left = size - total * connectivity
            one.append(size * math.comb(left, total) // left)
        mixed = sum(
            (j * (rings + 1) - total) * one[j] * power[total - j]
            for j in range(1, min(total, len(one) - 1) + 1)
        )
        power.append(mixed // total)
        yield power[-1]
