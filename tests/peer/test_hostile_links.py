"""Links and machines that fail: slow, frozen, stalled, full."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from basil.peer.members.roster import Roster, load_roster
from basil.protocol.requests import Absent

from bad_link import BadLink
from peer_helpers import (
    QUICK,
    STAGE,
    Peer,
    Rogue,
    Victim,
    frames_of,
    model,
    until,
)

VALUES = 1 << 20  # 4 MiB: five chunks with the header


@pytest.fixture
def link(ring: Path) -> Iterator[BadLink]:
    link = BadLink(int(load_roster(ring).members[1].address.rpartition(":")[2]))
    yield link
    link.close()


def _through(ring: Path, link: BadLink) -> Roster:
    """The roster as a sender sees it whose way to node 1 leads over this link."""
    roster = load_roster(ring)
    moved = [
        replace(m, address=f"127.0.0.1:{link.port}") if m.id == 1 else m for m in roster.members
    ]
    return replace(roster, members=tuple(moved))


def test_a_slow_link_delivers_as_long_as_it_is_not_too_slow(ring: Path, link: BadLink) -> None:
    link.rate = 4e6
    limits = replace(QUICK, slowest=1e6)
    sender = Peer(ring, 0, limits, VALUES, roster=_through(ring, link))
    with sender as a, Peer(ring, 1, limits, VALUES) as b:
        a.transport.send((1,), STAGE, 1, model(1, VALUES))
        assert a.transport.flush(20)
        assert b.rounds == [1]
        assert torch.equal(b.got[0].body, model(1, VALUES))  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_link_below_the_minimum_is_given_up_by_both_sides(ring: Path, link: BadLink) -> None:
    link.rate = 0.5e6
    limits = replace(QUICK, grace=0.5, slowest=4e6, give_up=3.0)
    sender = Peer(ring, 0, limits, VALUES, roster=_through(ring, link))
    with sender as a, Peer(ring, 1, limits, VALUES) as b:
        a.transport.send((1,), STAGE, 1, model(1, VALUES))
        assert a.transport.flush(20)
        assert a.transport.counters[1].dropped == 1
        assert b.got == []
        link.rate = None
        a.transport.send((1,), STAGE, 2, model(2, VALUES))
        assert a.transport.flush(20)
        assert b.rounds == [2]


def test_a_sender_that_dribbles_is_cut_off_and_does_not_block_its_next_transfer(
    ring: Path,
) -> None:
    limits = replace(QUICK, grace=0.5, stall=0.5)
    with Peer(ring, 1, limits, VALUES) as b, Rogue(ring, 0, VALUES) as rogue:
        manifest, data = rogue.packed(1, model(1, VALUES))

        end = threading.Event()

        def dribble() -> Iterator[bytes]:
            yield from frames_of(manifest, data)[:2]
            end.wait(60)

        # It is the receiver that ends this: the sender would go on waiting.
        answer = rogue.deliver(1, dribble(), timeout=60)
        end.set()
        assert answer.startswith(("CANCELLED", "DEADLINE_EXCEEDED"))
        assert until(lambda: b.refused(0) == {"slow": 1})
        assert rogue.deliver(1, frames_of(manifest, data)) == "taken"


def test_a_sender_that_opens_a_transfer_and_says_nothing_is_cut_off(ring: Path) -> None:
    limits = replace(QUICK, grace=0.3, stall=0.3)
    with Peer(ring, 1, limits) as b, Rogue(ring, 0) as rogue:
        end = threading.Event()

        def nothing() -> Iterator[bytes]:
            end.wait(60)
            yield b""

        answer = rogue.deliver(1, nothing(), timeout=60)
        end.set()
        assert answer.startswith(("CANCELLED", "DEADLINE_EXCEEDED"))
        assert until(lambda: b.refused(0) == {"slow": 1})


@pytest.mark.slow
def test_a_half_open_connection_is_noticed_and_replaced(ring: Path, link: BadLink) -> None:
    """The cable is pulled in the middle of a transfer; no packet says so."""
    link.rate = 4e6
    sender = Peer(ring, 0, QUICK, VALUES, roster=_through(ring, link))
    with sender as a, Peer(ring, 1, QUICK, VALUES) as b:
        a.transport.send((1,), STAGE, 1, model(1, VALUES))
        time.sleep(0.4)
        link.frozen = True
        assert until(lambda: a.transport.counters[1].retries > 0)
        assert b.got == []
        link.rate = None
        link.mend()
        assert a.transport.flush(20)
        assert b.rounds == [1]


@pytest.mark.slow
def test_a_stopped_receiver_delays_nobody_else_and_is_served_when_it_goes_on(
    ring: Path,
) -> None:
    with Victim(ring, 1, VALUES) as victim, Peer(ring, 0, QUICK, VALUES) as a:
        limits = replace(QUICK, waiting=10)
        with Peer(ring, 2, limits, VALUES) as c, Peer(ring, 3, limits, VALUES) as d:
            a.transport.send((1, 2, 3), STAGE, 1, model(1, VALUES))
            assert a.transport.flush(20)
            os.kill(victim.process.pid, signal.SIGSTOP)
            for k in range(2, 6):
                a.transport.send((1, 2, 3), STAGE, k, model(k, VALUES))

                def arrived(k: int = k) -> bool:
                    return c.rounds[-1] == d.rounds[-1] == k

                assert until(arrived, 5)  # while nothing is known of node 1
            assert a.transport.counters[1].sent == 1
            os.kill(victim.process.pid, signal.SIGCONT)
            assert a.transport.flush(20)
            assert until(lambda: victim.tell()["taken"][-1] == [0, 5])
            taken = [k for _, k in victim.tell()["taken"]]
    assert taken[0] == 1
    assert taken == sorted(set(taken))


@pytest.mark.slow
def test_a_killed_receiver_is_noticed_at_once(ring: Path) -> None:
    with Peer(ring, 0, replace(QUICK, give_up=60.0)) as a:
        with Victim(ring, 1):
            a.transport.send((1,), STAGE, 1, model())
            assert a.transport.flush(10)
        a.transport.send((1,), STAGE, 2, model())
        assert until(lambda: a.transport.counters[1].rejected["unavailable"] > 0)
        with Victim(ring, 1) as again:
            assert a.transport.flush(20)
            assert until(lambda: again.tell()["taken"] == [[0, 2]])


@pytest.mark.slow
def test_a_full_disk_takes_nothing_in_and_forgets_nothing(ring: Path) -> None:
    """What cannot be written down is not taken; when there is room again, it is."""
    with Rogue(ring, 0) as sender, Victim(ring, 1) as victim:
        first, second = (frames_of(*sender.packed(k, Absent(k))) for k in (1, 2))
        assert sender.deliver(1, first) == "taken"
        written = (ring / "node-1" / "marks.jsonl").stat().st_size
        victim.tell(f"largest file {written + 100}")  # less than a line
        assert sender.deliver(1, second).startswith("RESOURCE_EXHAUSTED disk")
        assert sender.deliver(1, first) == "known"
        assert (ring / "node-1" / "marks.jsonl").stat().st_size == written
        victim.tell(f"largest file {written + 10_000}")
        assert sender.deliver(1, second) == "taken"
        assert sender.deliver(1, first).startswith("FAILED_PRECONDITION late")
        assert until(lambda: victim.tell()["taken"] == [[0, 1], [0, 2]])


def test_a_node_whose_disk_is_full_sends_nothing_that_it_could_sign_twice(
    ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Peer(ring, 0) as a, Peer(ring, 1) as b:

        def full(file: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("basil.peer.link.journal.os.fdatasync", full)
            with pytest.raises(OSError, match="No space left"):
                a.transport.send((1,), STAGE, 1, model(1))
        assert a.transport.send((1,), STAGE, 1, model(2))
        assert a.transport.flush(10)
        assert torch.equal(b.got[0].body, model(2))  # type: ignore[arg-type]
