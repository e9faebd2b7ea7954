"""Anonymous cyclic data sharing: Algorithm 2 by hand, in general, and its cost."""

from collections import deque
from collections.abc import Generator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basil.protocol.requests import Arrival, Receive, Send
from basil.protocol.sharing.acds import Sharer, SharingOutcome, acds
from basil.protocol.sharing.anonymity import arcs, candidates
from basil.protocol.sharing.basket import Basket
from basil.protocol.sharing.timetable import Timetable
from basil.theory import acds_bits, acds_time

from sharing_helpers import PUBLIC, share

SIZES = st.integers(1, 9).flatmap(lambda N: st.tuples(st.just(N), st.integers(1, N)))


@settings(max_examples=60, deadline=None)
@given(SIZES, st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_everybody_has_what_everybody_shared(sizes, batches, size, opening) -> None:
    nodes, groups = sizes
    shared = share(nodes, groups, batches, size, opening=opening)
    for node in range(nodes):
        assert len(shared.offered(node)) == batches * size
        others = [shared.offered(i) for i in range(nodes) if i != node]
        assert shared.received(node) == set().union(*others)
        assert len(shared.outcomes[node].received) == len(shared.received(node))
        assert shared.incidents(node) == []


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.integers(1, 4), st.integers(1, 5), st.integers(1, 4))
def test_cost_and_time_are_proposition_3(n, groups, batches, size) -> None:
    nodes = n * groups
    shared = share(nodes, groups, batches, size, bits=800, megabits=2)
    numbers = {
        "nodes": nodes,
        "groups": groups,
        "points": 100,
        "share": batches * size / 100,
        "batches": batches,
        "bits_per_point": 800,
    }
    assert shared.seconds == pytest.approx(acds_time(**numbers, megabits_per_second=2), rel=1e-9)
    # The paper counts n batches for node 1 in the dummy round, which has no sender for n = 2, and
    # a global sharing with nobody for G = 1.
    unsent = numbers["share"] * 100 * 800 * ((n / batches) * (n == 2) + n * (groups == 1))
    assert shared.bits[0] == pytest.approx(acds_bits(**numbers) - unsent, rel=1e-9)
    if n > 2 and groups > 1:
        assert shared.bits[0] == max(shared.bits.values())


def test_the_example_of_remark_5() -> None:
    shared = share(100, 4, 5, 5, bits=24500, megabits=100)
    assert shared.seconds == pytest.approx(4.624375, rel=1e-4)  # 24.5 kbit are no whole bytes
    assert max(shared.bits.values()) == pytest.approx(76.685e6, rel=1e-4)


def test_an_opening_round_of_dummies_costs_one_more_lap() -> None:
    plain, veiled = (share(8, 2, 3, 2, opening=opening) for opening in (False, True))
    lap = 4 * 4 * (2 * 800 / 1e6)  # n passes of n batches
    assert veiled.seconds - plain.seconds == pytest.approx(lap)


def test_two_groups_of_three_by_hand() -> None:
    """H = 2, M = 1.  Group {0, 1, 2}: what is in each basket, by the round of its arrival."""
    shared = share(6, 2, 2, 1, own=2)
    first = [p for p in shared.sent if p.sender < 3]
    order = {i: [p.numbers for p in first if p.sender == i] for i in range(3)}
    a1, a2 = order[0][0][0], 1 - order[0][0][0]  # node 0 owns 0 and 1
    b1 = next(x for x in order[1][0] if x >= 100)
    c1 = next(x for x in order[2][0] if x >= 200)
    b2, c2 = 201 - b1, 401 - c1
    in_baskets = [(p.sender, p.round, {x for x in p.numbers if x < PUBLIC}) for p in first]
    assert in_baskets == [
        (0, 1, {a1}),
        (1, 1, {a1, b1}),
        (2, 2, {a1, b1, c1}),
        (0, 2, {a2, b1, c1}),
        (1, 2, {a2, b2, c1}),
        (2, 3, {a2, b2, c2}),
        (0, 3, {b2, c2}),  # and a dummy: node 1 still misses c2
        (0, 4, {a1, a2, b1, b2, c1, c2}),
    ]
    assert [p.to for p in first] == [(1,), (2,), (0,), (1,), (2,), (0,), (1,), (3, 4, 5)]
    assert sum(x >= PUBLIC for x in first[6].numbers) == 1
    for node in range(3):
        own = {100 * node, 100 * node + 1}
        others = {100 * i + j for i in range(6) for j in range(2)}
        assert shared.received(node) == others - own


def test_candidates() -> None:
    shared = share(4, 1, 3, 2)
    found = {
        (node, r.round): (r.samples, *candidates(shared.table, node, 0, r.round))
        for node, outcome in shared.outcomes.items()
        for r in outcome.receipts
        if r.samples
    }
    assert found[1, 1] == (2, 1, 1)  # node 1 knows that the first batch is node 0's
    assert found[3, 1] == (6, 3, 3)
    assert found[1, 2] == (6, 3, 3)
    assert found[1, 4] == (4, 3, 2)
    assert found[2, 4] == (2, 3, 1)  # who knows the dummies knows that these are node 3's
    assert (3, 4) not in found


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 8), st.sets(st.integers(0, 7), min_size=1, max_size=4))
def test_what_colluders_learn_from_their_baskets(n, colluders) -> None:
    """By their own means: what B received less what A passed on is of the honest nodes between."""
    colluders = {c for c in colluders if c < n} or {0}
    shared = share(n, 1, 3, 2)
    found = arcs(shared.table, colluders)
    assert set(found) == set(range(n)) - colluders
    in_round = {(p.to[0], p.round): set(p.numbers) for p in shared.sent}
    passed = {(p.sender, p.round - (p.to[0] < p.sender)): set(p.numbers) for p in shared.sent}
    ordered = sorted(colluders)
    for a, b in pairwise(ordered):
        # In round 2 and 3 the basket goes from a to b, both in the same lap.
        for r in (2, 3):
            between = in_round[b, r] - passed[a, r]
            owners = {x // 100 for x in between if x < PUBLIC}
            assert owners == set(range(a + 1, b))
            assert all(found[owner] == b - a - 1 for owner in owners)
    around = [i for i in range(n) if i > ordered[-1] or i < ordered[0]]
    assert all(found[i] == len(around) for i in around)


def test_unknown_dummies_are_kept_like_samples() -> None:
    shared = share(4, 1, 2, 1, known_dummies=False)
    assert [sum(x >= PUBLIC for x in shared.received(i)) for i in range(4)] == [0, 1, 2, 0]


def test_who_has_too_few_pads_with_dummies() -> None:
    shared = share(4, 2, 3, 2, own=4)
    assert {len(p.numbers) for p in shared.sent if p.round == 1} == {2}
    for node in range(4):
        assert shared.incidents(node) == [(0, "padded with dummies", node, 2)]
        assert len(shared.received(node)) == 3 * 4


def test_the_same_text_shares_bytes() -> None:
    """As peers would: a row is the bytes of an image and its label; two nodes, by hand."""
    table = Timetable(((0, 1),), 2, 1, lambda k: 1.0)
    images = np.random.default_rng(0).integers(0, 10, (2, 4, 785), np.uint8)
    never = np.zeros(2, bool)

    def member(node: int) -> Generator[Any, Any, SharingOutcome]:
        return acds(
            Sharer(
                id=node,
                table=table,
                samples=Basket(images[node], 8 * 785),
                dummies=lambda k: Basket(np.zeros((k, 785), np.uint8), 8 * 785),
                is_sample=lambda basket: basket.rows[:, -1] < 10,
                is_dummy=lambda basket: never[: len(basket)],
                stream=np.random.default_rng(),  # the system's entropy
            )
        )

    protocols = [member(0), member(1)]
    outcomes: dict[int, Any] = {}
    boxes: list[deque[Arrival]] = [deque(), deque()]
    answers: list[Any] = [None, None]
    waiting = [False, False]
    while len(outcomes) < 2:
        for node, protocol in enumerate(protocols):
            if node in outcomes or (waiting[node] and not boxes[node]):
                continue
            answer = boxes[node].popleft() if waiting[node] else answers[node]
            try:
                request = protocol.send(answer)
            except StopIteration as end:
                outcomes[node] = end.value
                continue
            waiting[node] = isinstance(request, Receive)
            if isinstance(request, Send):
                answers[node] = 0.0
                assert isinstance(request.body, Basket)
                assert request.body.wire_bytes == 785 * len(request.body)
                boxes[request.to[0]].append(Arrival(node, request.round, request.body, 0.0))
    for node in (0, 1):
        assert len(outcomes[node].received) == 2
        assert len(outcomes[node].received.without(outcomes[1 - node].offered)) == 0
