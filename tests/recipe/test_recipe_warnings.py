"""What is allowed but likely to disappoint, with the numbers in it computed a second time."""

import re
from fractions import Fraction
from itertools import combinations
from math import comb

import pytest

from basil.protocol.schemes import SCHEMES
from basil.recipe import load, parse, warnings
from basil.theory import failure_exact


def warned(nodes, byzantine, connectivity=None, attack="gaussian", scheme="basil", **ring):
    if connectivity is not None:
        ring["connectivity"] = connectivity
    tree = {
        "ring": {"nodes": nodes, "byzantine": byzantine, **ring},
        "attack": {"name": attack},
        "scheme": {"name": scheme},
    }
    return warnings(parse(tree))


def only(sentences):
    assert len(sentences) == 1
    return sentences[0]


def number(pattern, sentence):
    found = re.search(pattern, sentence)
    assert found is not None, sentence
    return float(found[1])


def probability(sentence):
    return number(r"probability ([-0-9.e]+)", sentence)


def two_digits(number):
    return float(f"{float(number):.2g}")


def byzantine_majority(N, b, S):
    """Of the N − 1 others S are drawn; more than half of them among the b."""
    ways = sum(comb(b, i) * comb(N - 1 - b, S - i) for i in range(S // 2 + 1, min(b, S) + 1))
    return Fraction(ways, comb(N - 1, S))


def byzantine_row(N, b, S):
    """The share of rings with S Byzantine nodes in a row.

    The other rings: each of the N − b benign nodes has 0 … S − 1 Byzantine ones before it, and the
    ring is cut before any of N places.  So the gaps are counted by the coefficient of x^b in
    (1 + x + … + x^(S−1))^(N−b), and a ring with its cut at a benign node is N/(N−b) rings.
    """
    z = N - b
    ways = [1] + [0] * b
    for _ in range(z):
        ways = [sum(ways[max(0, n - S + 1) : n + 1]) for n in range(b + 1)]
    return 1 - Fraction(ways[b] * N, z * comb(N, b))


def test_the_count_of_rings_above_agrees_with_trying_them_all():
    for N, b, S in [(5, 2, 2), (7, 3, 2), (8, 5, 3), (9, 4, 1), (9, 6, 4)]:
        bad = sum(
            any(all((i + j) % N in byzantine for j in range(S)) for i in range(N))
            for byzantine in combinations(range(N), b)
        )
        assert byzantine_row(N, b, S) == Fraction(bad, comb(N, b))


def test_a_ring_that_cannot_fail_is_not_warned_about():
    assert byzantine_majority(20, 6, 7) > 0.01  # one benign predecessor among the 7 is enough
    assert byzantine_row(20, 6, 7) == 0
    assert warned(20, 6) == []  # S = 7 by default
    assert warned(100, 5, 6) == []
    assert warnings(load("demo")) == []


@pytest.mark.parametrize(("N", "b"), [(12, 5), (20, 6), (30, 14), (100, 33)])
def test_connectivity_is_warned_about_exactly_where_rings_fail_with_more_than_1_percent(N, b):
    chances = {S: byzantine_row(N, b, S) for S in range(1, b + 2)}
    assert {chance > 0.01 for chance in chances.values()} == {True, False}
    for S, chance in chances.items():
        said = warned(N, b, S)
        assert len(said) == (chance > 0.01), S
        assert all(probability(sentence) == two_digits(chance) for sentence in said), S


@pytest.mark.parametrize("connectivity", [2, 6])
def test_a_likely_failure_is_announced_with_the_smallest_connectivity_that_is_safe(connectivity):
    sentence = only(warned(100, 33, connectivity))
    assert f"ring.connectivity = {connectivity}:" in sentence
    assert probability(sentence) == two_digits(byzantine_row(100, 33, connectivity))
    advised = int(number(r"; S = (\d+) ", sentence))
    assert byzantine_row(100, 33, advised) <= 0.01 < byzantine_row(100, 33, advised - 1)


def test_who_follows_the_advice_is_not_told_of_failure_again():
    advised = int(number(r"; S = (\d+) ", only(warned(100, 33, 2))))
    assert not any("hears from" in sentence for sentence in warned(100, 33, advised))


def test_byzantine_nodes_in_a_row_need_one_predecessor_more_than_there_are_of_them():
    sentence = only(warned(20, 6, 6, placement="row"))
    assert "ring.connectivity = 6: with all 6 Byzantine nodes in a row" in sentence
    assert "S = 7 prevents that" in sentence
    assert not any("in a row" in s for s in warned(20, 6, 7, placement="row"))


def test_rows_that_are_shorter_than_the_memory_leave_nothing_to_chance():
    sentence = only(warned(20, 6, 3, placement="rows", row=4))
    assert "ring.row = 4: with 4 Byzantine nodes in a row" in sentence
    assert "S = 5 prevents that" in sentence
    assert warned(20, 6, 3, placement="rows") == []  # rows of S − 1
    assert "hears from" in only(warned(20, 6, 3))  # at random they may stand closer
    assert "with 6 Byzantine nodes in a row" in only(warned(20, 6, 6, placement="rows", row=9))


@pytest.mark.parametrize("placement", ["random", "row"])
@pytest.mark.parametrize("connectivity", [1, 3, 4])
def test_a_single_benign_node_is_warned_that_it_is_alone(placement, connectivity):
    sentence = only(warned(5, 4, connectivity, placement=placement))
    assert "ring.byzantine = 4" in sentence
    assert "the one benign node of 5" in sentence


@pytest.mark.parametrize("scheme", ["basil", "r-plain"])
def test_an_attack_without_attackers_is_pointed_out(scheme):
    sentence = only(warned(20, 0, attack="hidden", scheme=scheme))
    assert sentence == "attack 'hidden' has nobody to carry it out: ring.byzantine = 0"


@pytest.mark.parametrize("placement", ["random", "row", "rows"])
def test_no_warning_without_an_attack_or_for_a_ring_that_has_no_defence_anyway(placement):
    assert warned(100, 33, 2, attack="none", placement=placement) == []
    assert warned(100, 33, 2, scheme="r-plain", placement=placement) == []
    assert warned(100, 0, attack="none") == []


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name not in ("basil", "basil+")])
def test_a_ring_that_a_scheme_does_not_use_is_not_warned_about(scheme):
    assert warned(100, 33, 2, scheme=scheme, groups=4) == []


def test_a_million_nodes_are_warned_like_a_hundred():
    sentence = only(warned(1_000_000, 330_000, 12))
    assert "with probability 0.67" in sentence
    advised = int(number(r"; S = (\d+) ", sentence))
    assert failure_exact(1_000_000, 330_000, advised) <= 0.01
    assert failure_exact(1_000_000, 330_000, advised - 1) > 0.01
