"""A machine that has no thread left for a while: nothing ends for good, and the status says it."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from basil.peer.run.agreement import JOINING, Handshake, Hello
from basil.peer.run.peer import Peer as Node
from basil.peer.run.start import Options
from basil.peer.run.status import rows

from peer_helpers import STAGE, Peer, make_ring, model, until


class Machine:
    """No thread can be started while it is `full`; or none of those that the test names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full: Callable[[threading.Thread], bool] = lambda thread: False
        self.refused = 0
        start = threading.Thread.start

        def start_or_not(thread: threading.Thread) -> None:
            if self.full(thread):
                self.refused += 1
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_or_not)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(monkeypatch)
    yield made
    made.full = lambda thread: False


def every_thread(thread: threading.Thread) -> bool:
    return not thread.name.startswith("basil-serve")  # the receiver is in this process, too


@pytest.mark.parametrize("before", [False, True])
def test_what_could_not_be_sent_for_want_of_a_thread_is_sent_later(
    ring: Path, machine: Machine, caplog: pytest.LogCaptureFixture, before: bool
) -> None:
    """`before`: when the first message comes; otherwise in the middle of the run."""
    with caplog.at_level(logging.WARNING, "basil.peer"), Peer(ring, 0) as a, Peer(ring, 1) as b:
        rounds = [1, 2] if before else [1, 2, 3]
        if not before:
            a.transport.send((1,), STAGE, rounds[0], model())
            assert a.transport.flush(60)
        machine.full = every_thread
        a.transport.send((1,), STAGE, rounds[-2], model())
        assert until(lambda: machine.refused >= (1 if before else 2), 60)
        machine.full = lambda thread: False
        a.transport.send((1,), STAGE, rounds[-1], model())
        assert a.transport.flush(60)
        assert b.rounds == rounds
        assert a.transport.counters[1].failures >= 1
    (told,) = [r for r in caplog.records if r.message == "cannot send"]  # once, not at every try
    assert told.__dict__["facts"] == {"to": 1, "reason": "can't start new thread"}


def test_an_error_that_nobody_thought_of_costs_one_message_not_the_thread(
    ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Peer(ring, 0) as a, Peer(ring, 1) as b:
        a.transport.send((1,), STAGE, 1, model())
        assert a.transport.flush(60)
        outbox = a.transport._outboxes[1]
        monkeypatch.setattr(outbox, "_deliver", lambda parcel: 1 // 0)
        a.transport.send((1,), STAGE, 2, model())
        assert a.transport.flush(60)
        monkeypatch.undo()
        a.transport.send((1,), STAGE, 3, model())
        assert a.transport.flush(60)
        assert b.rounds == [1, 3]
        assert (a.transport.counters[1].failures, a.transport.counters[1].dropped) == (1, 1)


def test_gossip_goes_on_after_an_error(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("basil.peer.link.gossip.RETRY", 0.05)
    with Peer(ring, 0) as a:
        tries: list[float] = []

        def fail() -> None:
            tries.append(time.monotonic())
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(a.transport._gossip, "_tell_proofs", fail)
        assert until(lambda: len(tries) >= 3, 60)


def test_a_handshake_goes_on_after_an_error() -> None:
    class Line:
        tries = 0

        def ask(self, node: int, what: str, payload: bytes, timeout: float) -> bytes | None:
            self.tries += 1
            if self.tries < 3:
                raise RuntimeError("can't start new thread")
            return payload

    meeting = Handshake(0, range(2), 0, lambda: Hello("a", JOINING, 0, 0.1))
    assert meeting.agree(Line(), window=60).hellos.keys() == {1}


def test_the_status_says_that_this_machine_could_not_send(tmp_path: Path) -> None:
    node = Node(Options(make_ring(tmp_path / "ring", 3) / "node-0", device="cpu"))
    node.transport.counters.add(2, failures=3)
    node._look(node.status)
    node.transport.stop()
    assert node.status.failures == 3
    (row,) = rows([node.status], [tmp_path / "node-0"])
    assert "cannot send 3" in row[-1]
