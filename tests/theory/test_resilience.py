"""Failure probabilities against the paper's numbers, brute force, and each other."""

import doctest
import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import basil.theory
from basil.errors import UserError
from basil.theory import (
    disconnected,
    failure_bound,
    failure_exact,
    failure_simulated,
    smallest_connectivity,
)

from whole_numbers import failure_fraction


@st.composite
def rings(draw: st.DrawFn, most: int = 200) -> tuple[int, int, int]:
    nodes = draw(st.integers(2, most))
    return nodes, draw(st.integers(0, nodes - 1)), draw(st.integers(0, nodes - 1))


def longest_run(flags: tuple[bool, ...]) -> int:
    """By slices of the ring written twice: not the way the library looks for runs."""
    twice = flags + flags
    return max(
        length
        for length in range(len(flags) + 1)
        for start in range(len(flags))
        if all(twice[start : start + length])
    )


# The remark after Prop. 2 (N=100, b=33) and its errata.


@pytest.mark.parametrize(
    ("connectivity", "bound", "exact"),
    [(15, 4.09e-7, 3.2e-7), (10, 5.35e-4, 4.0e-4), (6, 0.0929, 0.0654)],
)
def test_the_numbers_of_proposition_2(connectivity: int, bound: float, exact: float) -> None:
    assert failure_bound(100, 33, connectivity) == pytest.approx(bound, rel=2e-3)
    assert failure_exact(100, 33, connectivity) == pytest.approx(exact, rel=1e-2)


def test_with_two_predecessors_the_bound_is_vacuous_and_failure_all_but_certain() -> None:
    assert failure_bound(100, 33, 2) == pytest.approx(10.7, rel=5e-3)
    assert 1 - failure_exact(100, 33, 2) == pytest.approx(7e-8, rel=5e-2)


def test_the_bound_is_the_quotient_of_factorials() -> None:
    factorial = math.factorial
    quotient = Fraction(factorial(33) * factorial(90), factorial(23) * factorial(99))
    assert failure_bound(100, 33, 10) == pytest.approx(float(quotient), rel=1e-15)


# Exact values.


def longest_run_of_bits(ring: int, nodes: int) -> int:
    """How often the ring of bits can be laid over its own rotation before nothing is left."""
    if ring == (1 << nodes) - 1:
        return nodes
    length, left = 0, ring
    while left:
        length += 1
        left &= (ring >> length | ring << (nodes - length)) & ((1 << nodes) - 1)
    return length


@pytest.mark.parametrize("nodes", range(2, 15))
def test_exact_is_what_counting_every_ring_gives(nodes: int) -> None:
    counts: Counter[tuple[int, int]] = Counter(
        (ring.bit_count(), longest_run_of_bits(ring, nodes)) for ring in range(1 << nodes)
    )
    for byzantine, connectivity in itertools.product(range(nodes), range(nodes)):
        failures = sum(
            count for (b, run), count in counts.items() if b == byzantine and run >= connectivity
        )
        expected = Fraction(failures, math.comb(nodes, byzantine))
        assert failure_fraction(nodes, byzantine, connectivity) == expected
        assert failure_exact(nodes, byzantine, connectivity) == float(expected)


@given(rings())
def test_decimals_agree_with_fractions(ring: tuple[int, int, int]) -> None:
    assert failure_exact(*ring) == float(failure_fraction(*ring))


@given(rings())
def test_exact_is_a_probability_below_the_bound(ring: tuple[int, int, int]) -> None:
    # 1e-15: the two are equal where only one run can be long, and each is rounded on its own
    assert 0 <= failure_exact(*ring) <= min(1, failure_bound(*ring) * (1 + 1e-15))


@given(rings(60))
def test_failure_falls_with_connectivity_and_grows_with_byzantine_nodes(
    ring: tuple[int, int, int],
) -> None:
    nodes, byzantine, connectivity = ring
    here = failure_fraction(nodes, byzantine, connectivity)
    if connectivity + 1 < nodes:
        assert failure_fraction(nodes, byzantine, connectivity + 1) <= here
    if byzantine + 1 < nodes:
        assert failure_fraction(nodes, byzantine + 1, connectivity) >= here


def test_one_more_predecessor_than_byzantine_nodes_never_fails() -> None:
    assert failure_exact(100, 33, 34) == failure_bound(100, 33, 34) == 0


def test_without_predecessors_it_always_fails() -> None:
    assert failure_exact(100, 0, 0) == failure_fraction(100, 0, 0) == 1
    assert disconnected([False] * 4, 0)


@pytest.mark.parametrize("connectivity", [1, 5, 10, 14, 20, 40, 5000])
def test_a_million_nodes_stay_probabilities(connectivity: int) -> None:
    exact = failure_exact(1_000_000, 330_000, connectivity)
    assert 0 <= exact <= min(1, failure_bound(1_000_000, 330_000, connectivity))


# Simulation.


@pytest.mark.parametrize("connectivity", [2, 4, 6])
def test_the_simulated_interval_contains_the_exact_value(connectivity: int) -> None:
    estimate, low, high = failure_simulated(100, 33, connectivity, trials=3000, seed=7)
    assert 0 <= low <= estimate <= high <= 1
    assert low <= failure_exact(100, 33, connectivity) <= high


def test_the_same_seed_simulates_the_same_rings() -> None:
    first = failure_simulated(50, 15, 4, trials=200, seed=3)
    assert first == failure_simulated(50, 15, 4, trials=200, seed=3)
    assert first != failure_simulated(50, 15, 4, trials=200, seed=4)


def test_what_never_happens_has_an_interval_that_starts_at_zero() -> None:
    estimate, low, high = failure_simulated(10, 2, 3, trials=100, seed=0)
    assert (estimate, low) == (0, 0)
    assert high == pytest.approx(0.037, abs=1e-3)  # Wilson: z²/(n + z²)


@given(st.lists(st.booleans(), min_size=2, max_size=12), st.integers(0, 11))
def test_disconnected_finds_the_longest_run(flags: list[bool], connectivity: int) -> None:
    connectivity %= len(flags)
    assert disconnected(flags, connectivity) == (longest_run(tuple(flags)) >= connectivity)


def test_a_run_across_the_seam_counts() -> None:
    assert disconnected([True, False, False, True, True], 3)
    assert not disconnected([True, False, True, False, True], 3)


# The smallest connectivity.


@pytest.mark.parametrize("exact", [True, False])
@given(rings(60), st.floats(1e-12, 0.999))
def test_the_smallest_connectivity_suffices_and_one_less_does_not(
    exact: bool, ring: tuple[int, int, int], failure: float
) -> None:
    nodes, byzantine = ring[0], max(ring[1] - 1, 0)
    probability = failure_exact if exact else failure_bound
    smallest = smallest_connectivity(nodes, byzantine, failure, exact)
    assert probability(nodes, byzantine, smallest) <= failure
    assert probability(nodes, byzantine, smallest - 1) > failure


def test_the_smallest_connectivity_of_a_million_nodes() -> None:
    assert smallest_connectivity(1_000_000, 330_000, 1e-9) == 31
    assert smallest_connectivity(1_000_000, 330_000, 1e-9, exact=False) == 32


def test_more_nodes_than_logarithms_can_tell_apart() -> None:
    assert smallest_connectivity(10**18, 3 * 10**17, 1e-9) == 52


@pytest.mark.parametrize(("byzantine", "smallest"), [(0, 1), (999_000, 27_267), (999_998, 999_999)])
def test_the_smallest_connectivity_at_the_edges_of_a_million(byzantine: int, smallest: int) -> None:
    assert smallest_connectivity(1_000_000, byzantine, 1e-9) == smallest


# Refusals.


@pytest.mark.parametrize(
    ("nodes", "byzantine", "connectivity", "says"),
    [
        (1, 0, 0, "at least 2 nodes"),
        (10, 10, 3, "0 to 9 can be Byzantine"),
        (10, -1, 3, "0 to 9 can be Byzantine"),
        (10, 3, 10, "0 to 9 predecessors"),
        (10, 3, -1, "0 to 9 predecessors"),
    ],
)
def test_an_impossible_ring_is_refused(
    nodes: int, byzantine: int, connectivity: int, says: str
) -> None:
    for probability in (failure_bound, failure_exact):
        with pytest.raises(UserError, match=says):
            probability(nodes, byzantine, connectivity)
    with pytest.raises(UserError, match=says):
        failure_simulated(nodes, byzantine, connectivity, trials=1, seed=0)


@pytest.mark.parametrize("failure", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_a_wanted_probability_lies_between_0_and_1(failure: float) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        smallest_connectivity(100, 33, failure)


def test_a_single_benign_node_has_no_connectivity() -> None:
    with pytest.raises(UserError, match="at most 8 can be Byzantine"):
        smallest_connectivity(10, 9, 0.5)


def test_no_trials_are_refused() -> None:
    with pytest.raises(UserError, match="trials = 0"):
        failure_simulated(10, 3, 2, trials=0, seed=0)


def test_the_example_of_the_package() -> None:
    assert doctest.testmod(basil.theory, extraglobs=vars(basil.theory)).failed == 0
