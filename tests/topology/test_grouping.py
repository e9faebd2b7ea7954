"""A ring cut into groups, and the way of the average through them, by hand."""

import pytest

from basil.errors import UserError
from basil.topology import Grouping, divide
from basil.topology.groups import Hop, Route


def test_sizes_differ_by_one_at_most_and_the_order_stays() -> None:
    order = (9, 3, 7, 1, 5, 0, 8, 2, 6, 4)
    assert divide(order, 4) == ((9, 3, 7), (1, 5, 0), (8, 2), (6, 4))
    assert divide(order, 1) == (order,)
    for groups in (0, 11):
        with pytest.raises(UserError, match="1 to 10 groups"):
            divide(order, groups)


def test_one_ring_of_groups() -> None:
    """Each group takes in the average of all before it."""
    assert Grouping(tuple(range(8)), 4).routes == (
        Route((), target=1),
        Route((Hop(source=0, theirs=1, own=1, depth=1),), target=2),
        Route((Hop(source=1, theirs=2, own=1, depth=2),), target=3),
        Route((Hop(source=2, theirs=3, own=1, depth=3),), target=0),
    )


def test_rings_of_rings() -> None:
    """Groups 1 and 3 join with the one before at once; then 3 takes in what 1 has."""
    assert Grouping(tuple(range(8)), 4, fanout=2).routes == (
        Route((), target=1),
        Route((Hop(source=0, theirs=1, own=1, depth=1),), target=3),
        Route((), target=3),
        Route((Hop(2, 1, 1, depth=1), Hop(source=1, theirs=2, own=2, depth=2)), target=0),
    )


def test_first_and_last_nodes_of_a_group() -> None:
    grouping = Grouping(tuple(range(8)), 2)
    assert grouping.first(1, 2) == (4, 5)
    assert grouping.last(1, 2) == (6, 7)
    assert grouping.ring_of(5).order == (4, 5, 6, 7)
