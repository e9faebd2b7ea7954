"""Algorithm 3 on three rings of three nodes, checked against pencil and paper.

Node i holds one number a_i; its loss is ½ (x − a_i)².  S = 2, τ = 1, rate ½: an update halves the
distance to the node's own number, x ← ½ (x + a_i).  x⁰ = 0.  The rings are 0 1 2 | 3 4 5 | 6 7 8,
a = 8 4 8 | 4 4 12 | 12 6 4.

Round 1, rings
  0: takes x⁰     -> 4      3: takes x⁰     -> 2        6: takes x⁰     -> 6
  1: {4, 0}: 4    -> 4      4: {2, 0}: 2    -> 3        7: {6, 0}: 6    -> 6
  2: {4, 4}: n. 1 -> 6      5: {3, 2}: 3    -> 7.5      8: {6, 6}: n. 7 -> 5
Aggregation.  S_1 = {1, 2} sends 4 and 6 to S_2 = {4, 5}:
  4 (a = 4):  takes 4 of node 1  ->  (3 + 4) / 2 = 3.5
  5 (a = 12): takes 6 of node 2  ->  (7.5 + 6) / 2 = 6.75
They send to S_3 = {7, 8}:
  7 (a = 6):  takes 6.75 of node 5  ->  (6 + 2 · 6.75) / 3 = 6.5
  8 (a = 4):  takes 3.5 of node 4   ->  (5 + 2 · 3.5) / 3 = 4
Multicast.  They send to S_1 = {1, 2}:
  1 (a = 4): takes 4 of node 8      2 (a = 8): takes 6.5 of node 7
which send these to U_1 = {0, 1}, U_2 = {3, 4}, U_3 = {6, 7}:
  0 (8): 6.5   1 (4): 4, its own   3 (4): 4   4 (4): 4   6 (12): 6.5   7 (6): 6.5
Nodes 2, 5 and 8 keep what they have: 6, 7.5, 5.
Round 2, rings
  0: 6.5            -> 7.25     3: 4            -> 4    6: 6.5            -> 9.25
  1: {7.25, 4}: 4   -> 4        4: {4, 4}: n. 3 -> 4    7: {9.25, 6.5}: 6.5 -> 6.25
  2: {4, 7.25}: 7.25 -> 7.625   5: {4, 4}: n. 4 -> 8    8: {6.25, 9.25}: 6.25 -> 5.125
"""

import pytest

from basil.protocol.basil_plus import r_plain_plus
from basil.protocol.numbering import AGGREGATION, MULTICAST, RING

from group_helpers import constant, nothing, simulate_groups, times_1000
from ring_helpers import Quadratic

A = (8.0, 4.0, 8.0, 4.0, 4.0, 12.0, 12.0, 6.0, 4.0)
PROBLEM = Quadratic(A, x0=0.0)
TURNS = {0: 4, 1: 4, 2: 6, 3: 2, 4: 3, 5: 7.5, 6: 6, 7: 6, 8: 5}
HELD = {0: 6.5, 1: 4, 2: 6, 3: 4, 4: 4, 5: 7.5, 6: 6.5, 7: 6.5, 8: 5}


@pytest.mark.parametrize("on_arrival", [True, False])
def test_two_rounds_by_hand(on_arrival: bool) -> None:
    story = simulate_groups(PROBLEM, groups=3, connectivity=2, rounds=2, on_arrival=on_arrival)
    turns = {c.node: c.value for c in story.choices if (c.round, c.stage, c.last) == (1, RING, 0)}
    assert turns == TURNS
    assert story.in_stage(1, AGGREGATION) == {4: 1, 5: 2, 7: 5, 8: 4, 1: 8, 2: 7}
    assert story.in_stage(1, MULTICAST) == {0: 2, 1: 1, 3: 1, 4: 1, 6: 2, 7: 2}
    assert story.held(1) == HELD
    second = {c.node: c.value for c in story.choices if (c.round, c.stage, c.last) == (2, RING, 0)}
    assert second == {0: 7.25, 1: 4, 2: 7.625, 3: 4, 4: 4, 5: 8, 6: 9.25, 7: 6.25, 8: 5.125}
    assert story.in_stage(2, RING) == {
        **{0: None, 1: None, 2: 0, 3: None, 4: 3, 5: 4, 6: None, 7: None, 8: 7}
    }


def test_r_plain_plus_by_hand() -> None:
    """Everybody takes what the one before sent; only the last nodes 2, 5, 8 and the first matter.

    Rings: 4, 4, 6 | 2, 3, 7.5 | 6, 6, 5.  Averages 6, (7.5 + 6) / 2 = 6.75, (5 + 2 · 6.75) / 3 =
    18.5 / 3: that is the mean of 6, 7.5 and 5, and where nodes 0, 3 and 6 go on from.
    """
    story = simulate_groups(PROBLEM, 3, 1, 2, scheme=r_plain_plus)
    mean = 18.5 / 3
    held = {**TURNS, 0: mean, 3: mean, 6: mean}
    assert story.held(1) == pytest.approx(held)
    second = {c.node: c.value for c in story.choices if (c.round, c.stage, c.last) == (2, RING, 0)}
    assert second[0] == pytest.approx((mean + 8) / 2)
    assert second[3] == pytest.approx((mean + 4) / 2)


@pytest.mark.parametrize("byzantine", range(9))
def test_models_times_1000_between_groups_move_nothing(byzantine: int) -> None:
    """Whoever it is: the others end where they would have if it had said nothing at all."""
    between = (AGGREGATION, MULTICAST)
    loud = simulate_groups(PROBLEM, 3, 2, 2, lies={byzantine: times_1000}, stages=between)
    quiet = simulate_groups(PROBLEM, 3, 2, 2, lies={byzantine: nothing}, stages=between)
    assert {i: x for i, x in loud.held(1).items() if i != byzantine} == {
        i: x for i, x in quiet.held(1).items() if i != byzantine
    }
    assert max(abs(x) for i, x in loud.held(2).items() if i != byzantine) <= 12


def test_models_times_1000_nobody_would_have_taken_change_not_a_bit() -> None:
    """Node 6 passes nothing on, so that it can only lie in its ring, where nobody needs it."""
    honest = simulate_groups(PROBLEM, 3, 2, 1, lies={6: times_1000}, stages=(MULTICAST,))
    assert honest.held(1) == HELD
    lying = simulate_groups(PROBLEM, 3, 2, 1, lies={8: times_1000}, stages=(RING,))
    assert lying.held(1) == HELD  # the last of a ring has nobody there to lie to


def test_a_group_all_of_whose_last_nodes_lie_is_lost_and_with_it_all() -> None:
    """The event of Prop. 5 in its worst case: S_2 = {4, 5} sends 10⁶, and nobody else can be heard.

    S_3 must take it: 7 -> (6 + 2 · 10⁶) / 3; so must S_1, and every first node starts from there.
    """
    lies = {4: constant(1e6), 5: constant(1e6)}
    story = simulate_groups(PROBLEM, 3, 2, 1, lies=lies, stages=(AGGREGATION,))
    chosen = story.in_stage(1, AGGREGATION)
    assert (chosen[7], chosen[8]) == (5, 5)
    assert all(story.held(1)[i] > 1e5 for i in (0, 1, 3, 6, 7))
    assert story.held(1)[2] == 6  # whoever is no first node still has its own model
