"""Deadlines, clocks and agreement: worked by hand, and against Byzantine nodes."""

import json
import threading
import time
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from basil.errors import UserError
from basil.peer.run import agreement
from basil.peer.run.agreement import (
    DONE,
    JOINING,
    TRAINING,
    Agreement,
    Alone,
    Handshake,
    Hello,
    Quorum,
    decode,
    where_to_rejoin,
)
from basil.peer.run.inbox import Inbox, Stopped
from basil.peer.run.liveness import Clock, Patience, longest_honest
from basil.peer.run.lockstep import in_ring_order
from basil.protocol.numbering import Numbering
from basil.protocol.requests import Arrival, Missing
from basil.topology import Ring


class Hand:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


# -- the clock and patience ---------------------------------------------------------------------


def test_the_protocols_clock_stands_still_until_the_start_and_may_change_its_pace() -> None:
    hand = Hand()
    clock = Clock(monotonic=hand)
    hand.time += 50
    assert clock.now() == 0.0
    clock.set_pace(0.1)
    hand.time += 5
    assert clock.now() == pytest.approx(0.5)
    assert clock.real_seconds_until(0.7) == pytest.approx(2.0)
    clock.set_pace(0.05)  # what has passed has passed
    assert clock.now() == pytest.approx(0.5)
    assert clock.real_seconds_until(0.7) == pytest.approx(4.0)


def test_in_the_time_of_one_real_patience_the_protocol_waits_one_of_its_own() -> None:
    """A turn of 2 s, factor 3: 6 s; the protocol's patience is 0.03 of its seconds."""
    hand = Hand()
    clock = Clock(monotonic=hand)
    patience = Patience(clock, 0.03, turn=2.0, factor=3.0, floor=0.5)
    assert patience.seconds == 6.0
    assert clock.real_seconds_until(0.03) == pytest.approx(6.0)


def test_patience_has_a_floor() -> None:
    assert Patience(Clock(), 1.0, turn=0.001, factor=3.0, floor=0.5).seconds == 0.5


def test_patience_grows_when_more_than_b_nodes_were_given_up_wrongly_and_shrinks_again() -> None:
    patience = Patience(Clock(), 1.0, turn=1.0, factor=2.0, byzantine=1)
    patience.wrong(4, 7)
    patience.wrong(4, 8)  # the same one again: it is slow, or lies
    assert patience.seconds == 2.0
    patience.wrong(5, 8)
    assert patience.seconds == pytest.approx(3.0)
    patience.calm()
    assert patience.seconds == pytest.approx(2.85)
    for _ in range(50):
        patience.calm()
    assert patience.seconds == 2.0


def test_old_suspicions_are_forgotten() -> None:
    patience = Patience(Clock(), 1.0, turn=1.0, factor=2.0, byzantine=1)
    patience.wrong(4, 1)
    patience.wrong(5, 40)
    assert patience.seconds == 2.0


def test_b_nodes_that_always_come_late_stretch_nothing_and_all_of_them_not_without_end() -> None:
    patience = Patience(Clock(), 1.0, turn=1.0, factor=1.0, byzantine=2)
    for k in range(1000):
        for byzantine in (1, 2):
            patience.wrong(byzantine, k)
    assert patience.seconds == 1.0
    for k in range(1000):
        for node in (1, 2, 3):
            patience.wrong(node, k)
    assert patience.seconds == 16.0


@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=9),
    st.lists(st.floats(0, 1e9), max_size=4),
)
def test_what_is_believed_of_a_claim_is_never_more_than_some_honest_node_says(
    honest: list[float], lies: list[float]
) -> None:
    b = len(lies)
    assert longest_honest([*lies, *honest], b) <= max(honest)
    if len(honest) > b:  # and not less than what the honest ones can defend
        assert longest_honest([*lies, *honest], b) >= sorted(honest, reverse=True)[b]


# -- the inbox ----------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.sampled_from(["put", "take", "mark", "crash"]), max_size=25))
def test_what_a_checkpoint_does_not_have_comes_again_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, story: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("arrivals")
    clock = Clock()
    clock.set_pace(1.0)
    inbox, mark = Inbox(clock, folder), list[int]()
    number, waiting, kept = 0, list[int](), list[int]()  # kept: what a crash must bring back
    for act in story:
        if act == "put":
            number += 1
            inbox.put(1, number, torch.tensor([float(number)]))
            waiting.append(number)
            kept.append(number)
        elif act == "take" and waiting:
            got = inbox.take(clock.now() + 10)
            assert isinstance(got, Arrival)
            assert isinstance(got.body, torch.Tensor)
            assert got.round == float(got.body[0]) == waiting.pop(0)
        elif act == "mark":
            mark = inbox.mark()
            inbox.forget(mark)
            kept = list(waiting)
        elif act == "crash":
            inbox = Inbox(clock, folder)
            inbox.restore(mark)
            waiting = list(kept)
    for expected in waiting:
        got = inbox.take(clock.now() + 10)
        assert isinstance(got, Arrival)
        assert got.round == expected
    assert isinstance(inbox.take(clock.now()), Missing)


def test_whoever_waits_for_a_message_is_woken_by_it_by_the_deadline_and_by_a_stop() -> None:
    clock = Clock()
    clock.set_pace(1.0)
    inbox = Inbox(clock)
    threading.Timer(0.05, inbox.put, (4, 2, torch.zeros(1))).start()
    got = inbox.take(clock.now() + 30)
    assert isinstance(got, Arrival)
    assert (got.sender, got.round) == (4, 2)
    assert isinstance(inbox.take(clock.now() + 0.05), Missing)
    threading.Timer(0.05, inbox.stop).start()
    with pytest.raises(Stopped):
        inbox.take(clock.now() + 30)


def test_a_twin_is_told_in_the_order_of_the_ring() -> None:
    """Node 3 of 0, 1, 2, 3: the model of 2 waits for that of 1, which was sent before it."""
    clock = Clock()
    clock.set_pace(1.0)
    inbox = Inbox(clock)
    inbox.hold = in_ring_order(Ring(range(4)), 3, 2, inbox.given, Numbering())
    inbox.put(2, 1, torch.zeros(1))
    threading.Timer(0.05, inbox.put, (1, 1, torch.zeros(1))).start()
    senders = [got.sender for got in (inbox.take(clock.now() + 30) for _ in range(2))]  # type: ignore[union-attr]
    assert senders == [1, 2]
    inbox.put(2, 2, torch.zeros(1))  # and not for ever, if 1 stays away
    got = inbox.take(clock.now() + 0.05)
    assert isinstance(got, Arrival)
    assert got.sender == 2


# -- agreement ----------------------------------------------------------------------------------


class Table:
    """Nodes that answer at once; what each says can be set."""

    def __init__(self, said: dict[int, bytes | None]) -> None:
        self.said = said

    def ask(self, node: int, what: str, payload: bytes, timeout: float) -> bytes | None:
        return self.said.get(node)


def hello(digest: str = "a", phase: str = JOINING, round: int = 0, turn: float = 0.1) -> bytes:
    return Hello(digest, phase, round, turn).encode()


def meeting(byzantine: int, nodes: int = 5) -> Handshake:
    return Handshake(0, range(nodes), byzantine, lambda: Hello("a", JOINING, 0, 0.1))


def test_all_who_say_the_same_agree() -> None:
    found = meeting(0).agree(Table({i: hello() for i in range(1, 5)}), window=20)
    assert found.missing == found.differing == frozenset()
    assert not found.turning(0)


def test_whoever_differs_is_named_and_the_run_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "SETTLES", 0.1)
    said: dict[int, bytes | None] = {i: hello() for i in range(1, 5)}
    said |= {2: hello("b"), 4: hello("c")}
    with pytest.raises(UserError, match="node 0 does not agree with nodes 2, 4 on what is to be"):
        meeting(1).agree(Table(said), window=20)


def test_up_to_b_that_differ_are_left_out_like_silent_ones() -> None:
    said: dict[int, bytes | None] = {i: hello() for i in range(1, 5)}
    said |= {2: hello("b"), 4: None}
    found = meeting(1).agree(Table(said), window=0.3)
    assert found.differing == {2}
    assert found.missing == {4}
    assert found.hellos.keys() == {1, 3}


def test_a_ring_that_turns_already_is_not_waited_for() -> None:
    said: dict[int, bytes | None] = {1: hello(phase=TRAINING, round=7), 2: None, 3: None}
    said[4] = hello(phase=DONE, round=9)
    found = meeting(1).agree(Table(said), window=60)
    assert found.turning(1)
    assert found.round(1) == 7  # the b highest claims are not believed
    one = Agreement({1: Hello("a", TRAINING, 999, 0.1)})
    assert not one.turning(1)
    assert one.round(1) == 0


def test_a_quorum_is_waited_for_and_whoever_is_alone_says_for_whom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agreement, "TELLS", 0.1)
    told: list[list[int]] = []
    here: dict[int, bytes | None] = {2: hello()}
    with pytest.raises(Alone, match=r"node 0 has waited 0\.4 s for nodes 1, 3, 4: 2 of 5 are here"):
        meeting(0).gather(Table(here), Quorum(3, 0.4, told.append))
    assert told == [[1, 3, 4]]  # once

    def comes_late(missing: list[int]) -> None:
        here[4] = hello()

    meeting(0).gather(Table(here), Quorum(3, 60.0, comes_late))
    meeting(0).gather(Table({}), Quorum(1, 0.0))


def test_whoever_was_heard_from_long_ago_is_not_here_unless_it_has_finished() -> None:
    node = meeting(0)
    node.answer(1, hello(phase=TRAINING))
    node.answer(2, hello(phase=DONE))
    assert node.missing(time.monotonic() - 60) == [3, 4]
    now = time.monotonic()
    assert node.missing(now) == [1, 3, 4]
    with pytest.raises(Alone, match="nodes 1, 3, 4"):
        node.gather(Table({}), Quorum(3, 0.1), now)


@pytest.mark.parametrize(
    ("byzantine", "here", "awaited"),
    [
        (1, {4, 5, 6}, [3]),  # three are absent, so honest ones too: 4 may be the Byzantine one
        (1, {3, 4, 5}, []),
        (1, {1, 2, 3, 5, 6}, []),  # one is absent: it may be the Byzantine one
        (1, {1, 2, 5, 6}, [3, 4]),
        (0, {4, 5, 6}, []),
        (0, {1, 2, 5, 6}, [3, 4]),
    ],
)
def test_a_node_does_not_learn_from_those_alone_that_may_all_be_byzantine(
    byzantine: int, here: set[int], awaited: list[int]
) -> None:
    """Node 0 of seven takes in the models of nodes 3 and 4; four of seven are a quorum."""
    node, sources = meeting(byzantine, 7), frozenset({3, 4})
    quorum = Quorum(4, 0.3, sources=sources, honest=byzantine + 1)
    said: dict[int, bytes | None] = {i: hello() for i in here}
    if not awaited:
        node.gather(Table(said), quorum)
        return
    names = ", ".join(map(str, awaited))
    with pytest.raises(Alone, match=rf"for nodes? {names}: all .* may be Byzantine.* --quorum 4$"):
        node.gather(Table(said), quorum)
    node.gather(Table(said), Quorum(4, 0.3))  # as with --quorum 4


def test_no_time_passes_for_a_protocol_while_a_quorum_is_waited_for() -> None:
    clock = Clock()
    patience = Patience(clock, 1.0, 0.0, 1.0, floor=0.01)
    with patience.paused():
        before = clock.now()
        time.sleep(0.05)
        assert clock.now() == before
    time.sleep(0.01)
    assert clock.now() > before


@given(st.binary(max_size=60) | st.sampled_from([b"[]", b"{}", b"null", b"1", b'{"phase": 3}']))
def test_whatever_a_peer_says_is_a_hello_or_nothing(payload: bytes) -> None:
    found = decode(payload)
    assert found is None or found.phase in agreement.PHASES


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "dancing"},
        {"round": -1},
        {"round": 1e400},
        {"turn": float("nan")},
        {"turn": -1},
        {"more": "x" * agreement.LONGEST},
    ],
)
def test_a_hello_that_makes_no_sense_is_none(change: dict[str, Any]) -> None:
    assert decode(json.dumps({**json.loads(hello()), **change}).encode()) is None


@pytest.mark.parametrize(
    ("own", "finished", "rejoins"),
    [(1, 0, None), (5, 4, None), (5, 5, 5), (5, 6, 7), (1, 9, 10), (1, 1, 1)],
)
def test_a_node_rejoins_where_the_ring_is(own: int, finished: int, rejoins: int | None) -> None:
    assert where_to_rejoin(own, finished) == rejoins
