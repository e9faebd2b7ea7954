"""Failure of some ring among several: Prop. 5 and §V-C against the paper and brute force."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basil.errors import UserError
from basil.theory import (
    disconnected,
    failure_exact,
    group_failure_bound,
    group_failure_exact,
    one_group_failure,
    smallest_group_connectivity,
)

from whole_numbers import group_failure_fraction


@st.composite
def grouped(draw: st.DrawFn) -> tuple[int, int, int, int]:
    size, groups = draw(st.integers(2, 12)), draw(st.integers(1, 6))
    nodes = size * groups
    return nodes, draw(st.integers(0, nodes - 1)), groups, draw(st.integers(1, size - 1))


def proposition_5(nodes: int, byzantine: int, groups: int, connectivity: int) -> Fraction:
    """The sum of Prop. 5, term by term, with n − s in the denominator."""
    size = nodes // groups
    return groups * sum(
        (
            size
            * math.prod(Fraction(max(i - s, 0), size - s) for s in range(connectivity))
            * Fraction(
                math.comb(byzantine, i) * math.comb(nodes - byzantine, size - i),
                math.comb(nodes, size),
            )
            for i in range(min(byzantine, size) + 1)
        ),
        Fraction(0),
    )


@pytest.mark.parametrize(("connectivity", "bound"), [(10, 1.17e-6), (7, 5.0e-4)])
def test_the_numbers_of_proposition_5(connectivity: int, bound: float) -> None:
    assert group_failure_bound(400, 60, 4, connectivity) == pytest.approx(bound, rel=5e-3)
    assert float(proposition_5(400, 60, 4, connectivity)) == pytest.approx(bound, rel=5e-3)


@pytest.mark.parametrize(("size", "bound"), [(10, 1.5e-3), (20, 5.2e-10)])
def test_the_numbers_of_case_1(size: int, bound: float) -> None:
    groups = 100 // size
    ways = math.comb(33, size) + math.comb(33, size - 1) * 67
    union = groups * one_group_failure(100, 33, groups, size - 1)
    assert union == pytest.approx(groups * ways / math.comb(100, size), rel=1e-12)
    assert union == pytest.approx(bound, rel=5e-2)


@given(grouped())
def test_proposition_5_is_proposition_2_whatever_the_groups(
    setting: tuple[int, int, int, int],
) -> None:
    assert group_failure_bound(*setting) == pytest.approx(float(proposition_5(*setting)), rel=1e-14)


@given(grouped())
def test_some_group_fails_at_least_as_often_as_a_given_one(
    setting: tuple[int, int, int, int],
) -> None:
    one, some = one_group_failure(*setting), group_failure_exact(*setting)
    slack = 1 + 1e-15
    assert one <= some <= min(1, setting[2] * one * slack)
    assert some <= group_failure_bound(*setting) * slack


@given(st.integers(2, 60), st.data())
def test_one_group_is_the_ring(nodes: int, data: st.DataObject) -> None:
    byzantine, connectivity = (data.draw(st.integers(0, nodes - 1)) for _ in range(2))
    expected = failure_exact(nodes, byzantine, connectivity)
    assert one_group_failure(nodes, byzantine, 1, connectivity) == expected
    assert group_failure_exact(nodes, byzantine, 1, connectivity) == expected


@pytest.mark.parametrize(("groups", "size"), [(2, 4), (3, 4), (2, 6), (4, 3)])
def test_groups_are_what_counting_every_placement_gives(groups: int, size: int) -> None:
    nodes = groups * size
    runs: Counter[tuple[int, int, int]] = Counter()
    for flags in itertools.product((False, True), repeat=nodes):
        rings = [flags[g * size : (g + 1) * size] for g in range(groups)]
        longest = [max((s for s in range(1, size) if disconnected(r, s)), default=0) for r in rings]
        runs[sum(flags), longest[0], max(longest)] += 1
    for byzantine, connectivity in itertools.product(range(nodes), range(1, size)):
        rows = [(row, count) for row, count in runs.items() if row[0] == byzantine]
        first = sum(count for row, count in rows if row[1] >= connectivity)
        some = sum(count for row, count in rows if row[2] >= connectivity)
        total = math.comb(nodes, byzantine)
        setting = nodes, byzantine, groups, connectivity
        assert one_group_failure(*setting) == float(Fraction(first, total))
        assert group_failure_exact(*setting) == float(Fraction(some, total))


@settings(deadline=None)
@given(grouped())
def test_the_series_agrees_with_whole_numbers(setting: tuple[int, int, int, int]) -> None:
    assert group_failure_exact(*setting) == float(group_failure_fraction(*setting))


@pytest.mark.parametrize(
    "setting", [(400, 60, 4, 3), (600, 300, 4, 4), (600, 300, 4, 3), (600, 300, 4, 2)]
)
def test_it_does_so_where_terms_cancel(setting: tuple[int, int, int, int]) -> None:
    assert group_failure_exact(*setting) == float(group_failure_fraction(*setting))


def test_a_million_nodes_of_which_few_are_benign() -> None:
    for groups in (1000, 10_000, 50_000):
        size = 1_000_000 // groups
        assert group_failure_exact(1_000_000, 999_000, groups, size - 1) == 1


@pytest.mark.parametrize("groups", [1, 10, 1000, 10_000])
@pytest.mark.parametrize("connectivity", [1, 10, 12, 30, 99])
def test_groups_of_a_million_nodes(groups: int, connectivity: int) -> None:
    setting = 1_000_000, 330_000, groups, connectivity
    assert 0 <= group_failure_exact(*setting) <= min(1, group_failure_bound(*setting))


@settings(deadline=None)
@given(grouped(), st.floats(1e-12, 0.999))
def test_the_smallest_connectivity_of_groups(
    setting: tuple[int, int, int, int], failure: float
) -> None:
    nodes, byzantine, groups, _ = setting
    byzantine = min(byzantine, nodes - 2)
    enough = [
        s
        for s in range(1, nodes // groups)
        if group_failure_exact(nodes, byzantine, groups, s) <= failure
    ]
    found = smallest_group_connectivity(nodes, byzantine, groups, failure)
    assert found == (min(enough) if enough else None)


# Refusals.


@pytest.mark.parametrize(
    ("groups", "connectivity", "says"),
    [
        (0, 1, "1 to 12 groups"),
        (13, 1, "1 to 12 groups"),
        (5, 1, "divisor of 12"),
        (3, 4, "ring of 4 has 0 to 3"),
    ],
)
def test_impossible_groups_are_refused(groups: int, connectivity: int, says: str) -> None:
    for probability in (group_failure_bound, group_failure_exact, one_group_failure):
        with pytest.raises(UserError, match=says):
            probability(12, 3, groups, connectivity)
