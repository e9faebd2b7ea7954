"""Messages between honest nodes: delivered once, in order, whatever restarts or stands still."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from basil.errors import UserError
from basil.peer.link.reception import Message
from basil.peer.messages.bodies import RowForm
from basil.peer.messages.manifest import decode
from basil.protocol.requests import Absent, Body, Rejoin
from basil.protocol.sharing.basket import Basket

from peer_helpers import QUICK, STAGE, Peer, Rogue, frames_of, model, until


def same(body: Body, expected: torch.Tensor) -> bool:
    return isinstance(body, torch.Tensor) and torch.equal(body, expected)


def test_a_multicast_reaches_all_bit_for_bit(ring: Path) -> None:
    with Peer(ring, 0) as a, Peer(ring, 1) as b, Peer(ring, 2) as c:
        for k in (1, 2, 5):
            a.transport.send((1, 2), STAGE, k, model(k))
            assert a.transport.flush(10)  # a queue holds two: a third would displace the first
    for peer in (b, c):
        assert peer.rounds == [1, 2, 5]
        assert all(same(m.body, model(m.round)) for m in peer.got)
        assert [m.sender for m in peer.got] == [0, 0, 0]
        assert [m.stage for m in peer.got] == [STAGE] * 3
        times = [m.time for m in peer.got]
        assert times == sorted(times)
    assert a.transport.counters[1].sent == 3
    assert b.transport.counters[0].received == 3
    assert b.transport.counters[0].bytes_received == a.transport.counters[1].bytes_sent > 12_000


def test_models_of_many_chunks_arrive_whole(ring: Path) -> None:
    values = 700_001  # 2.7 chunks
    with Peer(ring, 0, values=values) as a, Peer(ring, 1, values=values) as b:
        a.transport.send((1,), STAGE, 1, model(1, values))
        assert a.transport.flush(10)
    assert same(b.got[0].body, model(1, values))


def test_all_kinds_of_bodies_arrive(ring: Path) -> None:
    rows = RowForm("uint8", (9,), 72.0, most=50)
    basket = Basket(np.arange(90, dtype=np.uint8).reshape(10, 9), 72.0)
    with Peer(ring, 0, rows=rows) as a, Peer(ring, 1, rows=rows) as b:
        for body in (basket, Absent(3), Rejoin(), model()):
            a.transport.send((1,), STAGE, 1, body)
            assert a.transport.flush(10)
    first, second, third, fourth = (m.body for m in b.got)
    assert isinstance(first, Basket)
    assert np.array_equal(first.rows, basket.rows)
    assert (second, third) == (Absent(3), Rejoin())
    assert isinstance(fourth, torch.Tensor)


def test_stages_have_rounds_of_their_own(ring: Path) -> None:
    with Peer(ring, 0) as a, Peer(ring, 1) as b:
        a.transport.send((1,), "group 1", 5, model(1))
        a.transport.send((1,), "group 2", 1, model(2))
        assert a.transport.flush(10)
    assert [(m.stage, m.round) for m in b.got] == [("group 1", 5), ("group 2", 1)]


def test_a_receiver_that_starts_late_gets_what_is_still_wanted(ring: Path) -> None:
    with Peer(ring, 0) as a:
        for k in range(1, 7):
            a.transport.send((1,), STAGE, k, model(k))
        with Peer(ring, 1) as b:
            assert a.transport.flush(15)
            rounds = b.rounds
    # At most one was on its way and `outbox` waited: the newest ones, in order.
    assert rounds[-1] == 6
    assert rounds == sorted(set(rounds))
    assert a.transport.counters[1].dropped == 6 - len(rounds) >= 2
    assert a.transport.counters[1].retries > 0


def test_what_cannot_be_delivered_is_given_up_in_the_end(ring: Path) -> None:
    with Peer(ring, 0, limits=replace(QUICK, give_up=0.5)) as a:
        a.transport.send((1,), STAGE, 1, model())
        assert a.transport.flush(10)
    assert a.transport.counters[1].dropped == 1
    assert a.transport.counters[1].sent == 0


def test_the_same_message_again_is_acknowledged_and_not_handed_on(ring: Path) -> None:
    with Rogue(ring, 0) as sender, Peer(ring, 1) as b:
        frames = frames_of(*sender.packed(3, model()))
        assert sender.deliver(1, frames) == "taken"
        assert sender.deliver(1, frames) == "known"
        assert sender.deliver(1, frames[:1]) == "known"  # the body is not even asked for
        assert b.rounds == [3]
        assert b.transport.counters[0].duplicates == 2


def test_an_old_round_is_refused_also_after_a_restart(ring: Path) -> None:
    with Rogue(ring, 0) as sender:
        old, new = frames_of(*sender.packed(3, model(3))), frames_of(*sender.packed(4, model(4)))
        with Peer(ring, 1) as b:
            assert [sender.deliver(1, frames) for frames in (old, new)] == ["taken", "taken"]
            assert sender.deliver(1, old).startswith("FAILED_PRECONDITION late")
            assert b.rounds == [3, 4]
        with Peer(ring, 1) as b:
            assert sender.deliver(1, old).startswith("FAILED_PRECONDITION late")
            assert b.rounds == []
            assert b.transport.counters[0].late == 1


def test_after_a_restart_the_last_round_may_come_again_but_only_as_it_was(ring: Path) -> None:
    """A node that lost what it had taken is served again (Appendix C), with the same bytes."""
    with Rogue(ring, 0) as sender:
        frames = frames_of(*sender.packed(3, model(3)))
        with Peer(ring, 1):
            assert sender.deliver(1, frames) == "taken"
        with Peer(ring, 1) as b:
            assert sender.deliver(1, frames) == "taken"
            assert sender.deliver(1, frames) == "known"
            assert b.rounds == [3]
        with Peer(ring, 1) as b:
            other = frames_of(*sender.packed(3, model(4)))
            assert "equivocation" in sender.deliver(1, other)
            assert b.transport.evidence.excluded == {0}


def test_an_honest_node_that_crashed_does_not_sign_a_round_twice(ring: Path) -> None:
    with Peer(ring, 0) as a, Peer(ring, 1) as b:
        assert a.transport.send((1,), STAGE, 3, model(3))
        assert a.transport.flush(10)
        assert b.rounds == [3]
    with Peer(ring, 0) as a, Peer(ring, 1) as b:  # it has lost its checkpoint, and computes anew
        assert not a.transport.send((1,), STAGE, 3, model(33))
        assert not a.transport.send((1,), STAGE, 2, model(2))
        assert a.transport.send((1,), STAGE, 3, model(3))  # the same bits may go out again
        assert a.transport.send((1,), STAGE, 4, model(4))
        assert a.transport.flush(10)
        assert [m.round for m in b.got] == [3, 4]
        assert same(b.got[0].body, model(3))
        assert b.transport.evidence.excluded == frozenset()


def test_the_marks_are_on_the_disk_before_a_message_is_handed_on(ring: Path) -> None:
    marks = ring / "node-1" / "marks.jsonl"
    found = []
    peer = Peer(ring, 1)
    peer.transport._reception._deliver = lambda message: found.append(marks.read_bytes())
    with Rogue(ring, 0) as sender, peer:
        manifest, data = sender.packed(3, model())
        sender.deliver(1, frames_of(manifest, data))
    assert decode(found[0].splitlines()[-1]) == manifest


def test_what_the_node_could_not_keep_is_taken_when_it_is_sent_again(ring: Path) -> None:
    peer, got = Peer(ring, 1), []

    def deliver(message: Message) -> None:
        got.append(message.round)
        if len(got) == 1:
            raise OSError(28, "No space left on device")

    peer.transport._reception._deliver = deliver
    with Rogue(ring, 0) as sender, peer:
        frames = frames_of(*sender.packed(3, model()))
        assert sender.deliver(1, frames).startswith("RESOURCE_EXHAUSTED disk")
        assert sender.deliver(1, frames) == "taken"
        assert sender.deliver(1, frames) == "known"
        assert got == [3, 3]


def test_half_a_line_at_the_end_of_the_marks_is_a_message_that_was_not_taken(ring: Path) -> None:
    marks = ring / "node-1" / "marks.jsonl"
    with Rogue(ring, 0) as sender:
        with Peer(ring, 1):
            sender.deliver(1, frames_of(*sender.packed(3, model(3))))
        line = marks.read_bytes()
        marks.write_bytes(line + line[:100])  # the power failed here
        with Peer(ring, 1) as b:
            assert marks.read_bytes() == line
            assert sender.deliver(1, frames_of(*sender.packed(4, model(4)))) == "taken"
            assert b.rounds == [4]
    marks.write_bytes(b"nonsense\n" + line)
    with pytest.raises(UserError, match=r"marks.jsonl, line 1"):
        Peer(ring, 1)


def test_the_journal_of_marks_does_not_grow_without_end(
    ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("basil.peer.link.journal.LONGEST", 3000)
    with Rogue(ring, 0) as sender, Peer(ring, 1) as b:
        for k in range(1, 30):
            assert sender.deliver(1, frames_of(*sender.packed(k, model(k)))) == "taken"
            b.got.clear()
            assert (ring / "node-1" / "marks.jsonl").stat().st_size <= 3000
        assert "late" in sender.deliver(1, frames_of(*sender.packed(28, model(28))))


def test_a_rejoin_note_may_be_repeated(ring: Path) -> None:
    with Peer(ring, 0) as a, Peer(ring, 1) as b:
        for _ in range(2):
            a.transport.send((1,), STAGE, 7, Rejoin())
            assert a.transport.flush(10)
    assert [(m.round, m.body) for m in b.got] == [(7, Rejoin()), (7, Rejoin())]


def test_only_what_is_expected_is_taken(ring: Path) -> None:
    with Rogue(ring, 0) as sender, Peer(ring, 1) as b:
        b.transport.expected = lambda sender, stage, kind: sender == 2 or kind == "rejoin"
        assert "unexpected" in sender.deliver(1, frames_of(*sender.packed(1, model())))
        assert sender.deliver(1, frames_of(*sender.packed(1, Rejoin()))) == "taken"
        assert [m.body for m in b.got] == [Rejoin()]


def test_questions_are_answered(ring: Path) -> None:
    with Peer(ring, 0) as a, Peer(ring, 1) as b:
        b.transport.answers["sum"] = lambda sender, payload: b"%d" % (sender + sum(payload))
        assert a.transport.ask(1, "sum", bytes([3, 4]), 5.0) == b"7"
        assert a.transport.ask(1, "product", b"", 5.0) is None
        assert a.transport.ask(2, "sum", b"", 0.5) is None  # nobody is there
        assert a.transport.ask(9, "sum", b"", 0.5) is None  # nor can be
        b.transport.answers["sum"] = lambda sender, payload: bytes(1 // 0)
        assert a.transport.ask(1, "sum", b"", 5.0) is None
        assert b.transport.counters[0].questions >= 2


def test_an_address_in_use_is_one_sentence(ring: Path) -> None:
    with Peer(ring, 0):
        (ring / "node-0" / "marks.jsonl").unlink()
        second = Peer(ring, 0)
        with pytest.raises(UserError, match="cannot be listened on"):
            second.transport.start()


def test_what_the_node_does_not_take_is_not_piled_up(ring: Path) -> None:
    """It holds on to two messages of a sender: the third is refused till it lets one go."""
    limits = replace(QUICK, waiting=2)
    with Rogue(ring, 0) as sender, Peer(ring, 1, limits) as b:
        answers = [sender.deliver(1, frames_of(*sender.packed(k, model(k)))) for k in (1, 2, 3)]
        assert answers[:2] == ["taken", "taken"]
        assert answers[2].startswith("RESOURCE_EXHAUSTED waiting")
        b.got.pop(0)
        assert until(
            lambda: sender.deliver(1, frames_of(*sender.packed(3, model(3)))) == "taken", 5
        )
        assert b.rounds == [2, 3]
