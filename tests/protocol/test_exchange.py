"""What comes to a node between rings: whose averages it keeps, and for whom it waits.

Six nodes in two rings of three, S = 2, so S_1 = {1, 2} and S_2 = {4, 5}, U_1 = {0, 1} and
U_2 = {3, 4}.  A model is one number.
"""

from collections.abc import Iterable

import pytest
import torch

from basil.engine.process import Work, compute_now
from basil.protocol.drive import Driver
from basil.protocol.exchange import Exchange, mixed
from basil.protocol.numbering import AGGREGATION, Numbering
from basil.protocol.requests import Arrival, Missing, Receive, Score, Select
from basil.topology import Grouping, Ring

from ring_helpers import Quadratic, plain_node

COMPUTE = Quadratic((0.0,) * 6, x0=0.0).compute()
NUMBERS = Numbering(1, joined=True)


def member(node: int) -> Exchange:
    rings, everybody = Grouping(tuple(range(6)), 2), Ring(range(6))
    return Exchange(plain_node(node, COMPUTE, ring=everybody, grouping=rings, rounds=9))


def kept(of: Exchange, *arrivals: tuple[int, int, float]) -> dict[tuple[int, int], float]:
    """What is there for the other stages after (sender, number, model) have arrived."""
    for sender, number, value in arrivals:
        model = torch.tensor([value])
        of.inbox.take_in(Arrival(sender, number, model, 0.1), model, my_step=0)
    return {at: float(entry.model) for at, entry in of.inbox.state.between.items()}


def test_averages_come_from_the_last_nodes_of_the_group_before() -> None:
    number = NUMBERS.aggregation(1)
    taken = kept(member(5), (1, number, 1.0), (2, number, 2.0), (0, number, 3.0), (4, number, 4.0))
    assert taken == {(number, 1): 1.0, (number, 2): 2.0}


def test_what_is_handed_round_comes_from_the_first_group_to_its_first_nodes() -> None:
    number = NUMBERS.multicast(1)
    assert kept(member(3), (1, number, 1.0), (5, number, 2.0)) == {(number, 1): 1.0}
    assert kept(member(5), (1, number, 1.0)) == {}  # the last node of its ring


def test_of_two_averages_the_first_counts() -> None:
    number = NUMBERS.aggregation(1)
    assert kept(member(5), (2, number, 1.0), (2, number, 2.0)) == {(number, 2): 1.0}


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 99])
def test_averages_of_this_round_and_the_next_are_kept(k: int) -> None:
    node = member(5)
    node.inbox.state.round = 3
    assert bool(kept(node, (2, NUMBERS.aggregation(k), 1.0))) is (k in (3, 4))


def test_who_returns_still_hears_the_multicast_before_its_round() -> None:
    node = member(3)
    for _ in node.rejoin(3):
        pass
    assert list(kept(node, (1, NUMBERS.multicast(2), 1.0), (1, NUMBERS.multicast(1), 1.0))) == [
        (NUMBERS.multicast(2), 1)
    ]


def test_an_average_counts_for_as_many_groups_as_are_in_it() -> None:
    own, theirs = torch.tensor([1.0]), torch.tensor([4.0])
    assert float(mixed(own, theirs, 1, 2)) == 3.0
    assert float(mixed(own, theirs, 2, 1)) == 2.0


def test_what_is_left_of_a_round_is_given_up_when_the_next_begins() -> None:
    node = member(3)
    kept(node, (1, NUMBERS.multicast(1), 1.0), (1, NUMBERS.multicast(2), 2.0))
    node.begin_laps(1, since=0.0)
    assert kept(node) == {(NUMBERS.multicast(2), 1): 2.0}


# -- for whom a node waits -----------------------------------------------------------------------


def waits(node: Exchange, k: int, speak: Iterable[int]) -> bool:
    """Does node 5 wait until the deadline where these have sent it an average?"""
    number = NUMBERS.aggregation(k)
    node.inbox.state.round = k
    kept(node, *((i, number, 1.0) for i in speak))
    gathering = Driver(node.chosen_of(node.call(k, AGGREGATION, 0, 1), k, torch.zeros(1)))
    waited = False
    for request in gathering:
        if isinstance(request, Receive):
            waited, gathering.answer = True, Missing(request.until)
        else:
            assert isinstance(request, Score | Select)
            gathering.answer = compute_now(COMPUTE, request, Work())
    return waited


def test_who_was_silent_is_waited_for_again_once_it_speaks() -> None:
    node = member(5)
    assert waits(node, 1, speak=[2])  # node 1 is silent
    assert not waits(node, 2, speak=[2])  # which costs one deadline
    assert not waits(node, 3, speak=[1, 2])
    assert waits(node, 4, speak=[2])  # it spoke the last time


def test_where_nobody_spoke_all_are_waited_for() -> None:
    node = member(5)
    assert waits(node, 1, speak=[])
    assert waits(node, 2, speak=[])  # running ahead alone would help nobody
    assert not waits(node, 3, speak=[1])  # one has: the other costs nothing more
