"""Data sharing with nodes that drop out, cheat or lie: it ends in time, and somebody notices."""

import pytest

from basil.attack.basket_faults import FAULTS
from basil.protocol.sharing.timetable import Timetable

from sharing_helpers import PUBLIC, Shared, share

CHEATS = [name for name in FAULTS if name != "none"]


def whats(shared: Shared, node: int) -> set[str]:
    return {what for _, what, _, _ in shared.incidents(node)}


@pytest.mark.parametrize("fault", CHEATS)
@pytest.mark.parametrize("byzantine", range(5))
@pytest.mark.parametrize("fault_round", [1, 2, 4])
def test_a_cheat_neither_stops_the_cycle_nor_goes_unseen(fault, byzantine, fault_round) -> None:
    shared = share(10, 2, 3, 2, faults={byzantine: fault}, fault_round=fault_round)
    assert len(shared.outcomes) == 10  # all came to the end
    assert shared.seconds <= shared.table.end() + 0.1
    sends = [p for p in shared.sent if p.sender == byzantine and p.round >= fault_round]
    if sends or fault == "silent":
        noticed = [i for i in range(10) if i != byzantine and shared.incidents(i)]
        acted = fault != "keeps-in" or any(p.round > 1 for p in sends)
        # In the dummy round the last two pass nothing on, and the first, if it keeps its last
        # batch in, is found out by node 1 as at any other time.
        assert noticed or not acted or (fault_round == 4 and byzantine > 0)
    for node in range(10):
        foreign = {i for x in shared.received(node) if x < PUBLIC for i in [x // 100]}
        assert node not in foreign
        assert all(x >= 0 for x in shared.received(node))
    # The other group goes on undisturbed among its own.
    for node in range(5, 10):
        peers = set().union(*(shared.offered(i) for i in range(5, 10) if i != node))
        assert peers <= shared.received(node)


def test_the_basket_goes_round_an_absent_node() -> None:
    """Node 2 is silent from the start; node 3 says so, and from then on node 1 sends to it."""
    shared = share(5, 1, 3, 1, faults={2: "silent"})
    assert (1, "silent", 2, 0) in shared.incidents(3)
    assert (1, "reported absent by 3", 2, 0) in shared.incidents(0)
    sent = [p for p in shared.sent if p.sender == 1]
    assert [p.to for p in sent] == [(2,), (3,), (3,), (3,), (3,)]
    assert sent[0].numbers == sent[1].numbers  # what fell with node 2, once more
    for node in (0, 1, 3, 4):
        others = set().union(*(shared.offered(i) for i in (0, 1, 3, 4) if i != node))
        assert others <= shared.received(node)
        assert "own samples did not come back" not in whats(shared, node)


@pytest.mark.parametrize("silent", [(1,), (2, 3), (1, 3), (3, 4), (4,), (0,)])
@pytest.mark.parametrize("fault", ["silent", "too-much"])
@pytest.mark.parametrize("fault_round", [1, 2, 3])
def test_a_lost_basket_comes_a_second_time(silent, fault, fault_round) -> None:
    """Whoever is out, and even two in a row: nothing that the others have put in is lost."""
    shared = share(6, 1, 3, 2, faults=dict.fromkeys(silent, fault), fault_round=fault_round)
    honest = [i for i in range(6) if i not in silent]
    for node in honest:
        others = set().union(*(shared.offered(i) for i in honest if i != node))
        assert others <= shared.received(node)
    assert shared.seconds <= shared.table.end() + 0.1


def test_nothing_comes_a_second_time_where_there_is_no_time_to_spare() -> None:
    table = Timetable(((0, 1, 2, 3),), 2, 1, lambda k: 0.1 * k, patience=1.0)
    assert table.last_call(4, 2, 2) == table.deadline(4, 2, 2)
    patient = Timetable(((0, 1, 2, 3),), 2, 1, lambda k: 0.1 * k)
    for position, r in [(1, 1), (2, 1), (1, 2), (3, 3)]:
        after = (position + 1, r) if position < 3 else (0, r + 1)
        hop = 0.1 * (position + 1 if r == 1 else 4)
        assert patient.last_call(4, position, r) + hop <= patient.deadline(4, *after) + 1e-9


@pytest.mark.parametrize("fault", ["too-much", "keeps-in"])
def test_more_than_the_others_can_have_put_in_is_refused(fault) -> None:
    shared = share(4, 1, 3, 2, faults={1: fault}, fault_round=2)
    most = shared.table.most_from_others(4, 2, 2)
    assert "too many samples" in whats(shared, 2)
    for passing in shared.sent:
        if passing.sender != 1:
            assert len(passing.numbers) <= most + 2
    assert all(p.to != (1,) for p in shared.sent if p.round > 2)  # it is out


def test_garbage_is_dropped_and_the_owners_hear_of_it() -> None:
    shared = share(4, 1, 2, 2, faults={1: "garbage"}, fault_round=1)
    assert "no samples" in whats(shared, 2)
    assert "own samples did not come back" in whats(shared, 0)
    assert all(min(shared.received(i), default=0) >= 0 for i in range(4))


def test_two_silent_in_a_row_and_a_silent_first_node() -> None:
    shared = share(6, 1, 4, 1, faults={2: "silent", 3: "silent"})
    last = set(shared.outcomes[0].offered.rows.tolist())
    assert last & shared.received(4)
    shared = share(6, 2, 3, 1, faults={0: "silent"})
    assert {p.sender for p in shared.sent if p.round == shared.table.global_round} == {1, 3}


def test_a_first_node_that_keeps_its_group_to_itself_is_noted() -> None:
    shared = share(6, 2, 2, 1, faults={0: "silent"}, fault_round=4)
    for node in (3, 4, 5):
        assert (4, "group missing", 0, 0) in shared.incidents(node)


def test_a_second_sender_makes_up_for_a_silent_first() -> None:
    shared = share(6, 2, 2, 1, faults={0: "silent"}, fault_round=4, senders=2)
    for node in (3, 4, 5):
        assert (4, "group missing", 0, 0) in shared.incidents(node)
        assert shared.received(node) == set().union(*(shared.offered(i) for i in range(6))) - (
            shared.offered(node)
        )
    honest = share(6, 2, 2, 1, senders=2)
    assert all(not honest.incidents(node) for node in range(6))
    for node in range(6):
        assert len(honest.received(node)) == len(honest.outcomes[node].received) == 5 * 2
