"""What a node makes of the baskets that come to it, and in which order it passes samples on."""

import numpy as np
import pytest

from basil import rng
from basil.protocol.requests import Absent, Arrival, Missing, Receive
from basil.protocol.sharing.acds import Stored
from basil.protocol.sharing.basket import Basket
from basil.protocol.sharing.basket_inbox import BasketInbox, Sharer
from basil.protocol.sharing.timetable import Timetable

from sharing_helpers import share


def test_a_group_that_has_sent_counts_also_if_its_sender_is_given_up_later() -> None:
    """A false report after the basket came costs nothing, and nobody waits for another sender."""
    me = member(3)
    me.take_in(Arrival(4, 4, Basket(np.arange(2), 8), 0.0))
    me.take_in(Arrival(5, 2, Absent(4), 0.0))
    assert me.absent == {4}
    assert me.missing() == []


def member(node: int) -> BasketInbox:
    stream = rng.stream(0, "test")
    table = Timetable(((0, 1, 2, 3), (4, 5)), 2, 1, lambda k: 0.1 * k)
    never = lambda basket: np.zeros(len(basket), bool)  # noqa: E731
    return BasketInbox(
        Sharer(
            id=node,
            table=table,
            samples=Basket(np.arange(4), 8),
            dummies=lambda k: Basket(np.arange(k), 8),
            is_sample=lambda basket: basket.rows < 100,
            is_dummy=never,
            stream=stream,
        )
    )


def test_a_node_is_believed_about_its_own_predecessor_only() -> None:
    me = member(3)
    me.take_in(Arrival(2, 2, Absent(0), 0.0))
    assert not me.absent
    me.take_in(Arrival(1, 2, Absent(0), 0.0))
    assert me.absent == {0}
    me.take_in(Arrival(0, 2, Absent(3), 0.0))  # who is absent accuses nobody
    assert me.absent == {0}


def test_nobody_is_absent_before_anybody_can_have_waited_for_it() -> None:
    """Node 3 reports all that stand before it at once, and rounds that there are not."""
    me = member(0)
    reports = [Arrival(3, r, Absent(4 - min(r, 3) - 1), 0.1) for r in (1, 2, 3, 4, 9)]
    assert reports[0].body == Absent(2)
    table, told = me.table, list[tuple[float, int]]()
    due = [table.deadline(4, 3, r) for r in (1, 2, 3)]
    answers: list[Arrival] = list(reports)

    def listen(until: float) -> bool:
        hearing = me.listen(until)
        request = next(hearing)
        assert isinstance(request, Receive)
        try:
            hearing.send(answers.pop(0) if answers else Missing(request.until))
        except StopIteration as end:
            told.append((me.now, len(me.absent)))
            return bool(end.value)
        raise AssertionError("nothing is to be sent")

    for _ in reports:
        assert listen(due[2])
    assert me.absent == set()
    while listen(due[2]):
        pass
    assert me.absent == {2, 1, 0}
    for deadline, count in zip(due, (1, 2, 3), strict=True):  # one in each round, and no earlier
        first = min(now for now, absent in told if absent >= count)
        spare = table.last_call(4, 3, count) - deadline
        assert deadline - spare <= first <= deadline


@pytest.mark.parametrize(
    ("sender", "round"), [(1, 1), (4, 1), (2, 0), (2, 99), (5, 4), (0, 4), (2, -1)]
)
def test_a_basket_from_the_wrong_node_or_round_is_not_taken(sender, round) -> None:
    me = member(3)
    me.take_in(Arrival(sender, round, Basket(np.arange(2), 8), 0.0))
    assert not me.here
    assert not me.groups
    assert [i.what for i in me.incidents] == ["unexpected basket"]


def test_rows_of_another_type_or_shape_are_no_samples() -> None:
    me = member(3)
    me.take_in(Arrival(2, 1, Basket(np.arange(2.0), 8), 0.0))
    me.take_in(Arrival(2, 2, Basket(np.zeros((2, 3), np.int64), 8), 0.0))
    assert [len(basket) for basket in me.here.values()] == [0, 0]
    assert [(i.what, i.samples) for i in me.incidents] == [("no samples", 2)] * 2


def test_a_second_basket_does_not_replace_the_first() -> None:
    me = member(3)
    for rows in ([1, 2], [3]):
        me.take_in(Arrival(2, 1, Basket(np.array(rows), 8), 0.0))  # from its predecessor
        me.take_in(Arrival(4, 4, Basket(np.array(rows), 8), 0.0))  # from the other group
    assert me.here[1].rows.tolist() == [1, 2]
    assert me.groups[1, 4].rows.tolist() == [1, 2]


def test_a_sample_that_comes_twice_counts_once() -> None:
    stored = Stored(Basket(np.arange(0), 8))
    stored.add(Basket(np.array([5, 5, 6]), 8), member(3).node, 1, 0)
    stored.add(Basket(np.array([6, 7]), 8), member(3).node, 2, 0)
    assert stored.samples.rows.tolist() == [5, 6, 7]
    assert [receipt.samples for receipt in stored.receipts] == [2, 1]


def test_a_group_cannot_flood_the_others() -> None:
    me = member(3)
    me.take_in(Arrival(4, 4, Basket(np.arange(5), 8), 0.0))  # 2 nodes, 2 batches of 1
    assert len(me.groups[1, 4]) == 0
    assert me.incidents[0].what == "too many samples"


def test_what_a_node_offers_is_drawn_from_all_that_it_has() -> None:
    """The first ones of a file may be of one class, or of one person."""
    offered = [share(2, 1, 1, 2, own=10, seed=seed).offered(0) for seed in range(60)]
    times = [sum(sample in some for some in offered) for sample in range(10)]
    assert sum(times) == 120
    assert min(times) >= 2  # 12 expected, standard deviation 3


def test_samples_stand_anywhere_among_the_dummies_they_are_padded_with() -> None:
    """Or the first batches would be worth more than the last, and say who has little data."""
    rounds = [0, 0]
    for seed in range(100):
        passed = [p for p in share(2, 1, 2, 2, own=1, seed=seed).sent if p.sender == 0]
        rounds[next(i for i, p in enumerate(passed) if 0 in p.numbers)] += 1
    assert min(rounds) > 25  # 50 expected, standard deviation 5


def test_order_says_nothing_about_the_owner() -> None:
    """Over many seeds, the newest batch stands at every place alike."""
    places = [0, 0, 0]
    for seed in range(300):
        third = next(p for p in share(3, 1, 1, 1, seed=seed).sent if p.sender == 2)
        places[[x // 100 for x in third.numbers].index(2)] += 1
    assert min(places) > 70  # 100 expected, standard deviation 8


def test_order_between_groups_says_nothing_about_the_owner() -> None:
    """Who sends a group's samples to the others puts its own at every place alike."""
    places = [0, 0]
    for seed in range(100):
        shared = share(4, 2, 1, 1, seed=seed)
        basket = next(p for p in shared.sent if p.sender == 0 and p.round == 3)
        places[[x // 100 for x in basket.numbers].index(0)] += 1
    assert min(places) > 25
