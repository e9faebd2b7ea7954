"""A predecessor that is ahead of everybody: models of rounds that nobody has come to."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from basil.experiment import set_up
from basil.peer.limits import Limits
from basil.peer.link import rpc
from basil.peer.run.engine import Behind, Engine
from basil.peer.run.inbox import BLOCK, Inbox
from basil.peer.run.liveness import Clock
from basil.protocol.requests import Arrival, Missing, Receive, Rejoin
from basil.recipe import parse

from nursery import Ring
from peer_helpers import QUICK, STAGE, Peer, Rogue, frames_of, model
from ring_helpers import Quadratic


def _clock() -> Clock:
    clock = Clock()
    clock.set_pace(1.0)
    return clock


@contextmanager
def _flood(rogue: Rogue, to: int, first: int = 1) -> Iterator[None]:
    """One model after the other, each of a later round."""
    over = threading.Event()

    def run() -> None:
        k, (manifest, body) = first, rogue.packed(1, model())
        while not over.is_set():
            answer = rogue.deliver(to, frames_of(rogue.signed(manifest, round=k), body))
            k += answer == "taken"

    thread = threading.Thread(target=run)
    thread.start()
    yield
    over.set()
    thread.join()


# -- deadlines -------------------------------------------------------------------------------


def test_a_sender_that_never_stops_does_not_put_off_a_deadline(ring: Path) -> None:
    """Each model takes as long to look at as it takes to send the next one."""
    limits = replace(QUICK, waiting=2, messages_burst=10**6)
    inbox = Inbox(_clock())
    with Peer(ring, 1, limits) as victim, Rogue(ring, 0) as rogue:
        deliver = victim.transport._reception
        deliver._deliver = lambda m: inbox.put(m.sender, m.round, m.body, m)
        with _flood(rogue, 1):
            deadline, looked_at = inbox.clock.now() + 0.5, 0
            while isinstance(inbox.take(deadline), Arrival) and looked_at < 50:
                looked_at += 1
                time.sleep(0.1)
    assert 1 <= looked_at < 10  # five, and what was waiting when the time was over


def test_after_the_deadline_only_what_came_before_it_is_handed_out() -> None:
    moments = iter([0.0, 0.0, 1.0, 3.0, *[9.0] * 100])  # made, set going, two arrivals, then late
    clock = Clock(lambda: next(moments))
    clock.set_pace(1.0)
    inbox = Inbox(clock)
    inbox.put(1, 1, torch.zeros(1))
    inbox.put(2, 1, torch.zeros(1))
    first = inbox.take(2.0)
    assert isinstance(first, Arrival)
    assert first.sender == 1
    assert isinstance(inbox.take(2.0), Missing)
    second = inbox.take(10.0)  # it is not lost: the next turn has it
    assert isinstance(second, Arrival)
    assert second.sender == 2


def test_what_came_while_others_were_waited_for_is_handed_out() -> None:
    """Before it gives somebody up, a node may ask around; time stands still for it meanwhile."""
    inbox = Inbox(_clock())
    engine = Engine(inbox, lambda send: None, Quadratic((0.0,), 0.0).compute(), byzantine=9)

    def asks_around() -> bool:
        inbox.put(3, 1, torch.zeros(1))
        return True

    engine.missed = asks_around
    got = engine._receive(Receive(inbox.clock.now()))
    assert isinstance(got, Arrival)
    assert got.sender == 3


# -- rounds ----------------------------------------------------------------------------------


def test_what_is_too_early_is_refused_before_its_body(ring: Path) -> None:
    with Peer(ring, 1) as victim, Rogue(ring, 0) as rogue:
        told: list[tuple[int, str, int]] = []

        def early(sender: int, stage: str, number: int) -> bool:
            told.append((sender, stage, number))
            return number > 5

        victim.transport.early = early
        manifest, body = rogue.packed(6, model())
        answer = rogue.deliver(1, [manifest.encode()])  # if it waited for the body: "truncated"
        assert answer.startswith("RESOURCE_EXHAUSTED early")  # a slow node will need it later
        assert victim.got == []
        unsigned = replace(manifest, signature="0" * 128)
        assert "signature" in rogue.deliver(1, [unsigned.encode()])
        assert told == [(0, STAGE, 6)]  # only of what was signed
        assert rogue.deliver(1, frames_of(*rogue.packed(5, model()))) == "taken"
        assert rogue.deliver(1, frames_of(*rogue.packed(9, Rejoin()))) == "taken"
        victim.transport.early = lambda *_: False
        assert rogue.deliver(1, frames_of(manifest, body)) == "taken"  # nothing was remembered


def test_a_node_that_waits_learns_at_once_that_it_was_left_behind() -> None:
    """Though nothing of so late a round is taken in; and one Byzantine node alone moves nobody."""
    inbox = Inbox(_clock())
    engine = Engine(inbox, lambda send: None, Quadratic((0.0,), 0.0).compute(), byzantine=1)
    inbox.note(1, 90)
    assert isinstance(engine._receive(Receive(inbox.clock.now() + 0.05)), Missing)
    threading.Timer(0.1, inbox.note, (2, 40)).start()
    with pytest.raises(Behind) as told:
        engine._receive(Receive(inbox.clock.now() + 60))
    assert told.value.round == 40


# -- the disk --------------------------------------------------------------------------------


def test_what_one_sender_can_have_on_the_disk_is_bounded(tmp_path: Path) -> None:
    clock = _clock()
    most = 4 * (4000 + BLOCK)
    inbox = Inbox(clock, tmp_path, most)
    for k in range(1, 50):
        inbox.put(1, k, torch.zeros(1000))
        inbox.put(1, k, Rejoin())
    inbox.put(2, 1, torch.zeros(1000))
    assert _on_disk(tmp_path) <= most + 4000 + BLOCK
    taken = [inbox.take(clock.now() + 60) for _ in range(99)]  # nothing is lost, but in a crash
    assert [got.round for got in taken if isinstance(got, Arrival)][:98:2] == list(range(1, 50))
    inbox.forget(inbox.mark())
    assert _on_disk(tmp_path) == 0
    inbox.put(1, 50, Rejoin())  # and there is room again
    again = Inbox(clock, tmp_path, most)
    again.restore([])
    assert isinstance(again.take(clock.now()), Arrival)


def test_what_an_earlier_life_left_counts(tmp_path: Path) -> None:
    clock, most = _clock(), 2 * (4000 + BLOCK)
    for life in range(1, 4):
        inbox = Inbox(clock, tmp_path, most)
        inbox.restore([])
        for k in range(3):
            inbox.put(1, 10 * life + k, torch.zeros(1000))
    assert 0 < _on_disk(tmp_path) <= most


def _on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


# -- a ring of processes ---------------------------------------------------------------------

TREE: dict[str, Any] = {
    "seed": 1,
    "ring": {"nodes": 4, "byzantine": 1, "connectivity": 2},
    "scheme": {"rounds": 8},
    "learning": {"model": "softmax", "batch": 16, "rate": 0.1},
    "record": {"every": 8},
}


@pytest.mark.slow
def test_a_member_that_sends_rounds_to_come_costs_a_ring_neither_turns_nor_disk(
    ring_of: Callable[..., Ring],
) -> None:
    ring, others, rounds = ring_of(TREE), [1, 2, 3], TREE["scheme"]["rounds"]
    over, seen = threading.Event(), 0
    with Rogue(ring.folder, 0) as rogue:
        rogue.layout = set_up(parse(TREE)).compute.layout
        manifest, body = rogue.packed(1, torch.randn(rogue.layout.size))

        def flood(method: grpc.StreamUnaryMultiCallable) -> None:
            k = 1
            while not over.is_set():
                k += 1
                with suppress(grpc.RpcError):
                    method(iter(frames_of(rogue.signed(manifest, round=k), body)), timeout=10)

        methods = [rogue.channel(to).stream_unary(rpc.DELIVER) for to in others]
        threads = [threading.Thread(target=flood, args=(method,)) for method in methods]
        ring.start_all("--window", "2", but=[0])
        ring.until(lambda: all(ring.round(i) >= 1 for i in others))
        for thread in threads:
            thread.start()
        begin = time.monotonic()
        while any(ring.round(i) < rounds for i in others) and time.monotonic() < begin + 90:
            folders = (ring.node(i) / "state" / "arrivals" for i in others)
            seen = max(seen, *(len(list(folder.glob("*.safetensors"))) for folder in folders))
            time.sleep(0.005)
        over.set()
        for thread in threads:
            thread.join()
    assert set(ring.wait(others).values()) == {0}, ring.story(others)
    assert seen <= Limits().arrivals + 4  # two of each honest node
    refused = [json.loads((ring.node(i) / "status.json").read_text())["refused"] for i in others]
    assert max(refused) > 20  # there was a flood
