"""What must hold for every ring, order, rule and garbage."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from basil import rng
from basil.errors import UserError
from basil.learning.pool import Batch
from basil.learning.promises import Losses, tensor_of
from basil.protocol.basil import basil
from basil.protocol.memory import INITIAL, Entry, Memory
from basil.protocol.requests import Absent, Arrival, Missing, Receive, Score
from basil.protocol.rules import RULES, Candidates
from basil.protocol.schemes import SCHEMES
from basil.protocol.sharing.basket import Basket
from basil.table import Table
from basil.testing import answered
from basil.testing.protocols import INF, OWN, check_choices, chosen
from basil.topology import Ring, agree_on_order

from ring_helpers import Quadratic, plain_node, simulate_quadratic

finite = st.floats(-100, 100, width=32)


@given(ids=st.sets(st.integers(0, 10**6), min_size=1, max_size=40), seed=st.integers(0, 2**40))
def test_order_agreement(ids: set[int], seed: int) -> None:
    """A permutation of the ids that every node computes alike, however it learned of them."""
    order = agree_on_order(ids, seed)
    assert sorted(order) == sorted(ids)
    assert agree_on_order(sorted(ids, reverse=True), seed) == order
    assert agree_on_order(list(ids), seed) == order


def test_order_is_random_in_the_seed() -> None:
    """Over many seeds each of four nodes comes first about equally often."""
    firsts = [agree_on_order(range(4), seed)[0] for seed in range(400)]
    for node in range(4):
        assert 60 < firsts.count(node) < 140  # 100 ± 4.6 standard deviations


@given(n=st.integers(2, 30), data=st.data())
def test_neighbours_on_the_ring(n: int, data: st.DataObject) -> None:
    ring = Ring(data.draw(st.permutations(range(n))))
    s = data.draw(st.integers(1, n - 1))
    for node in ring.order:
        ahead = ring.ahead(node, s)
        assert node not in ahead
        assert len(set(ahead)) == s
        for distance, other in enumerate(ahead, 1):
            assert node in ring.behind(other, s)
            assert ring.distance(node, other) == distance
            later = (
                ring.step(3, other)
                if ring.step(3, other) > ring.step(3, node)
                else ring.step(4, other)
            )
            assert later - ring.step(3, node) == distance


@given(
    size=st.integers(1, 6),
    sends=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 1000)), max_size=40),
)
def test_memory_keeps_the_last_s_and_one_of_each_sender(
    size: int, sends: list[tuple[int, int]]
) -> None:
    memory = Memory(size)
    for sender, step in sends:
        memory.insert(Entry(sender, step, torch.zeros(1)))
    last: dict[int, int] = {}
    for sender, step in sends:
        last.pop(sender, None)
        last[sender] = step
    assert [(e.sender, e.step) for e in memory.entries] == list(last.items())[-size:]
    steps = [e.step for e in memory.nearest_first()]
    assert steps == sorted(steps, reverse=True)


def test_memory_with_distinct_senders_is_the_queue_of_algorithm_1() -> None:
    memory = Memory(3)
    memory.insert(Entry(INITIAL, -1, torch.zeros(1)))
    for sender in range(5):
        memory.insert(Entry(sender, sender, torch.zeros(1)))
    assert [e.sender for e in memory.entries] == [2, 3, 4]


@given(losses=st.lists(st.lists(finite, min_size=3, max_size=3), min_size=1, max_size=8))
def test_lowest_loss_is_the_argmin_and_ties_go_to_the_nearest(losses: list[list[float]]) -> None:
    choice = chosen(RULES["lowest-loss"], losses)
    # The sums of three float32 numbers are exact in float64.
    means = [sum(row) for row in losses]
    best = means.index(min(means))
    assert choice.selected.index == best
    assert tensor_of(choice.model).tolist() == [best, best]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_chooses_among_what_is_usable(rule: str) -> None:
    check_choices(RULES[rule])


def test_no_rule_can_choose_garbage_even_if_it_tries() -> None:
    entries = [Entry(i, i, torch.full((2,), float(i))) for i in range(2)]
    losses = [Losses(torch.tensor([INF])), Losses(torch.tensor([1.0]))]
    candidates = Candidates(entries, losses, OWN, Batch(np.arange(1)))
    choice = answered(candidates.choose(lambda losses, means: torch.tensor(0)))
    assert torch.equal(tensor_of(choice.model), OWN)
    assert candidates.senders[choice.selected.index] is None


GARBAGE = st.sampled_from([float("nan"), float("inf"), float("-inf"), 3e38, -3e38])


@settings(max_examples=40, deadline=None)
@given(
    numbers=st.lists(st.floats(-10, 10, width=16), min_size=4, max_size=8),
    byzantine=st.data(),
)
def test_garbage_is_never_selected(numbers: list[float], byzantine: st.DataObject) -> None:
    """Wherever the senders of such values stand, and however many: nobody goes on from them."""
    n = len(numbers)
    sends = byzantine.draw(st.dictionaries(st.integers(0, n - 1), GARBAGE, max_size=n - 1))
    s = byzantine.draw(st.integers(1, n - 1))
    turns = simulate_quadratic(
        Quadratic(tuple(numbers), x0=1.0), s, rounds=3, rate=0.5, sends=sends, patience=0.1
    )
    for turn in turns:
        if turn.node not in sends:
            assert turn.chosen is None or turn.chosen not in sends
            assert abs(turn.value) <= 10


@settings(max_examples=25, deadline=None)
@given(numbers=st.lists(st.floats(-4, 4, width=16), min_size=3, max_size=7), s=st.data())
def test_order_of_scoring_does_not_matter(numbers: list[float], s: st.DataObject) -> None:
    connectivity = s.draw(st.integers(1, len(numbers) - 1))
    problem = Quadratic(tuple(numbers), x0=0.5)
    early = simulate_quadratic(problem, connectivity, 3, 0.25)
    late = simulate_quadratic(problem, connectivity, 3, 0.25, on_arrival=False)
    assert [(t.node, t.chosen, t.value) for t in early] == [
        (t.node, t.chosen, t.value) for t in late
    ]
    assert all(a.time <= b.time for a, b in zip(early, late, strict=True))


def test_with_one_predecessor_basil_is_r_plain() -> None:
    problem = Quadratic((4.0, 1.0, 7.0, 2.0), x0=0.0)
    one = simulate_quadratic(problem, 1, 3, 0.5)
    plain = simulate_quadratic(problem, 1, 3, 0.5, defended=False)
    assert [(t.node, t.chosen, t.value) for t in one] == [
        (t.node, t.chosen, t.value) for t in plain
    ]


@pytest.mark.parametrize("table", [RULES, SCHEMES])
def test_every_entry_is_documented(table: Table[Callable[..., Any]]) -> None:
    for name in table:
        assert len(inspect.getdoc(table[name]) or "") > 40
        assert 0 < len(table.summary(name)) <= 100


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'lowest-loss'"):
        RULES["lowest-los"]


def test_streams_are_independent_of_each_other() -> None:
    def draw(*name: str | int) -> list[float]:
        return rng.stream(7, *name).random(4).tolist()

    assert draw("node", 1, "round", 2) == draw("node", 1, "round", 2)
    assert draw("node", 1, "round", 2) != draw("node", 12, "round", 2)
    assert draw("node", 1) != draw("node", "1")
    assert draw("a", "bc") != draw("ab", "c")
    assert rng.stream(7, "x").random() != rng.stream(8, "x").random()
    assert 0 <= rng.key(7, "x") < 2**63


def test_a_body_that_is_no_model_is_for_nobody() -> None:
    """A Byzantine node may send a node of the ring what belongs to another protocol."""
    compute = Quadratic((1.0, 2.0, 3.0), x0=0.0).compute()
    member = basil(plain_node(2, compute))
    assert isinstance(next(member), Receive)
    for body in (Absent(0), Basket(np.arange(3), 8)):
        assert isinstance(member.send(Arrival(1, 1, body, 0.5)), Receive)
    request = member.send(Missing(9.0))
    assert isinstance(request, Score)
    assert request.model is compute.initial  # x⁰ is all that it stores
