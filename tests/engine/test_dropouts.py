"""Silence, absence and return (Appendix C) on a ring that can be followed by hand."""

from typing import Any

import pytest

from basil.engine.process import Absence

from ring_helpers import Quadratic, Turn, simulate_quadratic

NUMBERS = (3.0, 5.0, 4.0, 6.0, 2.0, 7.0, 1.0, 8.0)
N = len(NUMBERS)
LINK, EVAL, STEP = 100.0, 1.0, 10.0
TIMES = (EVAL, STEP, LINK)
TURN = LINK + EVAL + STEP
PATIENCE = 400.0


def ring(rounds: int, connectivity: int = 3, **settings: object) -> list[Turn]:
    return simulate_quadratic(
        Quadratic(NUMBERS, x0=0.0),
        connectivity,
        rounds,
        0.25,
        times=TIMES,
        patience=PATIENCE,
        **settings,  # type: ignore[arg-type]
    )


def turns_of(turns: list[Turn], node: int) -> list[int]:
    return [turn.round for turn in turns if turn.node == node]


def test_an_absent_node_misses_its_rounds_and_the_others_go_on() -> None:
    turns = ring(6, dropouts=1, absences=(Absence(node=3, leaves=3, returns=5),))
    assert turns_of(turns, 3) == [1, 2, 5, 6]
    for node in range(N):
        if node != 3:
            assert turns_of(turns, node) == [1, 2, 3, 4, 5, 6]


def test_a_node_that_never_returns_and_one_that_never_came() -> None:
    gone = (Absence(node=0, leaves=2, returns=None), Absence(node=5, leaves=1, returns=3))
    turns = ring(4, dropouts=2, absences=gone)
    assert turns_of(turns, 0) == [1]
    assert turns_of(turns, 5) == [3, 4]


@pytest.mark.parametrize("away", [(2,), (2, 3), (2, 5), (0, 7)])
def test_each_silent_node_costs_one_patience_a_lap(away: tuple[int, ...]) -> None:
    """The successor of a gap of m silent nodes waits m patiences instead of m turns.

    Steady state, so the last lap: from node 4 in round 3 to node 4 in round 4.
    """
    sends = dict.fromkeys(away)
    turns = ring(4, connectivity=4, sends=sends)
    times = {(t.round, t.node): t.time for t in turns}
    lap = times[4, 4] - times[3, 4]
    # A gap's first successor has had all stored models evaluated but for re-scored old ones: with
    # S = 4 stored and m of the senders silent, m models of an earlier lap are evaluated again.
    talking = N - len(away)
    shortest = talking * TURN + len(away) * (PATIENCE - TURN)
    longest = talking * (LINK + 4 * EVAL + STEP) + len(away) * PATIENCE
    assert shortest <= lap <= longest


def test_a_row_of_byzantine_nodes_behind_an_absent_node() -> None:
    """Appendix C's worst case: b = 2 Byzantine nodes in a row, then d = 1 absent node, then node 4.

    Multicast to b + d + 1 = 4, store b + 1 = 3: node 4 still hears from node 0, and takes its model
    whenever nothing better than the Byzantine nodes' is stored.
    """
    settings: dict[str, Any] = {
        "sends": {1: 1e6, 2: 1e6},
        "absences": (Absence(3, 2, None),),
    }
    turns = ring(4, dropouts=1, **settings)
    chosen = [t.chosen for t in turns if t.node == 4 and t.round >= 2]
    assert chosen == [0, 0, 0]
    # Without the extra reach node 4 hears of nobody but the Byzantine nodes and its own past.
    turns = ring(4, dropouts=0, **settings)
    assert all(t.chosen != 0 for t in turns if t.node == 4)


def test_a_returned_node_is_served_by_its_predecessors() -> None:
    """Node 4 misses rounds 2 and 3; its only predecessors fall silent from round 3 on.

    Their models of round 2 were sent while it was away.  That it goes on from one of them in round
    4 means that they answered when it announced its return.
    """
    numbers = (3.0, 5.0, 4.0, 6.0, 4.0, 7.0, 1.0, 8.0)
    turns = simulate_quadratic(
        Quadratic(numbers, x0=0.0),
        connectivity=3,
        rounds=4,
        rate=0.25,
        sends=dict.fromkeys((1, 2, 3)),
        lie_from=3,
        times=TIMES,
        patience=PATIENCE,
        absences=(Absence(4, 2, 4),),
    )
    assert turns_of(turns, 4) == [1, 4]
    values = {(t.round, t.node): t.value for t in turns}
    back = next(t for t in turns if (t.round, t.node) == (4, 4))
    assert back.chosen in (1, 2, 3)
    assert back.value == pytest.approx(0.75 * values[2, back.chosen] + 0.25 * numbers[4])
    assert back.value != pytest.approx(0.75 * values[1, back.chosen] + 0.25 * numbers[4])


def test_more_silent_predecessors_than_reach_do_not_stop_the_ring() -> None:
    """Nodes 1-5 are silent and S = 2: node 6 hears of nobody, and goes on from what it has."""
    turns = ring(3, connectivity=2, sends=dict.fromkeys(range(1, 6)))
    assert turns_of(turns, 6) == [1, 2, 3]
    assert turns_of(turns, 0) == [1, 2, 3]


def test_r_plain_goes_on_after_silence_too() -> None:
    turns = ring(3, connectivity=1, sends={2: None}, defended=False)
    assert turns_of(turns, 3) == [1, 2, 3]
    # Without a model from node 2 it has only x⁰ to go on from: ¾·0 + ¼·6, every time.
    assert [t.value for t in turns if t.node == 3] == [1.5, 1.5, 1.5]
