"""One node's protocol under the engine of a peer: crashes at every point, and what is told when."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch

from basil.errors import UserError
from basil.peer.run.engine import Behind, Engine
from basil.peer.run.inbox import Inbox
from basil.peer.run.liveness import Clock
from basil.protocol.basil import basil
from basil.protocol.requests import Absent, Checkpoint, Missing, Receive, Record, Send
from basil.record import checkpoint
from basil.topology import Ring

from ring_helpers import Quadratic, plain_node

ROUNDS = 3


class Crash(Exception):
    """Power is gone at this point."""


class Disk:
    """The engine's observer: keeps its checkpoint in a file."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self.path, self.engine = path, engine
        self.events: list[str] = []

    def record(self, record: Record, now: float) -> None: ...

    def save(self) -> None:
        self.events.append("save")
        checkpoint.save(self.path, self.engine.snapshot(), durable=True)

    def turned(self) -> None: ...


class Life:
    """Node 2 of the ring 0, 1, 2 from its start, or its restart, to its end or its next crash."""

    def __init__(self, folder: Path) -> None:
        self.compute = Quadratic((0.0, 1.0, 2.0), 5.0).compute()
        (folder / "arrivals").mkdir(exist_ok=True)
        self.posts: list[tuple[int, float]] = []
        self.post_crashes_after = -1
        clock = Clock()
        self.inbox = Inbox(clock, folder / "arrivals")
        self.engine = Engine(self.inbox, self._post, self.compute, byzantine=2)  # all comes at once
        self.disk = Disk(folder / "checkpoint.safetensors", self.engine)
        if self.disk.path.exists():
            self.engine.restore(checkpoint.load(self.disk.path))
            clock.restart(self.engine.since)
        self.inbox.restore(self.engine.mark)
        self.engine.observer = self.disk
        clock.set_pace(1.0)

    def _post(self, send: Send) -> None:
        if len(self.posts) == self.post_crashes_after:
            raise Crash
        assert isinstance(send.body, torch.Tensor)
        self.posts.append((send.round, float(send.body[0])))
        self.disk.events.append("post")

    def run(self, requests: float = float("inf")) -> None:
        """Crash before the protocol's request of that number is answered."""
        node = plain_node(
            2,
            self.compute,
            ring=Ring((0, 1, 2)),
            rounds=ROUNDS,
            patience=1e6,
            state=self.engine.state,
            start=self.engine.since,
        )
        self.engine.post_again()
        self.engine.run(_cut(basil(node), requests))


def _cut(protocol: Any, requests: float) -> Generator[Any, Any, None]:
    answer, count = None, 0
    while True:
        try:
            request = protocol.send(answer)
        except StopIteration:
            return
        if count >= requests:
            raise Crash
        count += 1
        answer = yield request


def arrive(folder: Path) -> None:
    """All that the predecessors send in three rounds, each message in a file."""
    life = Life(folder)
    for k in range(1, ROUNDS + 1):
        for sender in (0, 1):
            life.inbox.put(sender, k, torch.tensor([10.0 * k + sender]))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, float]]:
    """What a node sends that is left in peace."""
    folder = tmp_path_factory.mktemp("whole")
    arrive(folder)
    life = Life(folder)
    life.run()
    assert [k for k, _ in life.posts] == [1, 2, 3]
    # By hand: in round k it takes the nearest to 2 of what is stored, and goes half the way:
    # x⁰ = 5 is pushed out by the models 10, 11, of which 10 is the nearer: (10 + 2) / 2 = 6.
    assert life.posts == [(1, 6.0), (2, 11.0), (3, 16.0)]
    return life.posts


@pytest.mark.parametrize("point", range(22))
def test_a_crash_at_any_point_loses_nothing_and_contradicts_nothing(
    tmp_path: Path, whole: list[tuple[int, float]], point: int
) -> None:
    arrive(tmp_path)
    first = Life(tmp_path)
    ended = False
    try:
        first.run(point)
        ended = True
    except Crash:
        pass
    assert ended == (point >= 21)  # so the points are all there are
    second = Life(tmp_path)
    second.run()
    # Whatever was said in both lives was the same, and nothing is missing.
    assert set(first.posts) | set(second.posts) == set(whole)
    assert not list((tmp_path / "arrivals").iterdir())


@pytest.mark.parametrize("after", range(ROUNDS))
def test_a_crash_between_checkpoint_and_send_repeats_the_send(
    tmp_path: Path, whole: list[tuple[int, float]], after: int
) -> None:
    arrive(tmp_path)
    first = Life(tmp_path)
    first.post_crashes_after = after
    with pytest.raises(Crash):
        first.run()
    assert len(first.posts) == after
    second = Life(tmp_path)
    second.run()
    assert [*first.posts, *second.posts] == whole


def test_nothing_is_sent_that_is_not_on_the_disk(tmp_path: Path) -> None:
    arrive(tmp_path)
    life = Life(tmp_path)
    life.run()
    assert life.disk.events == ["save", "post"] * ROUNDS


def test_a_checkpoint_that_cannot_be_written_keeps_the_node_silent(tmp_path: Path) -> None:
    arrive(tmp_path)
    life = Life(tmp_path)

    def full() -> None:
        raise UserError("disk full")

    life.disk.save = full  # type: ignore[method-assign]
    with pytest.raises(UserError, match="disk full"):
        life.run()
    assert life.posts == []


def test_a_protocol_without_checkpoints_is_heard_before_it_waits(tmp_path: Path) -> None:
    """Such as data sharing: what it sends must be on its way when it asks for an answer."""
    posts: list[Send] = []
    clock = Clock()
    clock.set_pace(1.0)
    engine = Engine(Inbox(clock), posts.append, Quadratic((0.0,), 0.0).compute())

    def protocol() -> Generator[Any, Any, int]:
        yield Send((1,), 1, Absent(4))
        assert posts == []
        answer = yield Receive(clock.now() + 0.01)
        assert isinstance(answer, Missing)
        assert len(posts) == 1
        yield Send((1,), 2, Absent(5))
        return 7

    assert engine.run(protocol()) == 7
    assert [send.round for send in posts] == [1, 2]


def test_a_node_that_the_others_have_left_behind_is_told_so(tmp_path: Path) -> None:
    """By more than b of them: one that lies about its round moves nobody."""
    clock = Clock()
    clock.set_pace(1.0)
    inbox = Inbox(clock)
    engine = Engine(inbox, lambda send: None, Quadratic((0.0,), 0.0).compute(), byzantine=1)

    def protocol(k: int) -> Generator[Any, Any, None]:
        yield Checkpoint(k, dict)

    inbox.put(1, 90, torch.zeros(1))
    inbox.put(2, 5, torch.zeros(1))
    engine.run(protocol(4))
    inbox.put(3, 6, torch.zeros(1))
    with pytest.raises(Behind) as told:
        engine.run(protocol(4))
    assert told.value.round == 6


def test_a_sender_that_is_first_heard_while_a_node_looks_about_it_disturbs_nothing() -> None:
    """The network's threads put in what arrives at any moment: on a graph, all at once."""
    clock = Clock()
    clock.set_pace(1.0)
    inbox = Inbox(clock)

    def another(number: int) -> int:
        inbox.put(len(inbox.heard) + 1, 1, torch.zeros(1))
        return number

    engine = Engine(
        inbox, lambda send: None, Quadratic((0.0,), 0.0).compute(), round_of=another, byzantine=1
    )

    def protocol() -> Generator[Any, Any, int]:
        yield Checkpoint(1, dict)
        return 7

    inbox.put(1, 1, torch.zeros(1))
    inbox.put(2, 1, torch.zeros(1))
    assert engine.run(protocol()) == 7
    assert len(inbox.heard) == 4


def test_the_crash_in_a_send_to_several_is_a_crash_after_the_checkpoint(tmp_path: Path) -> None:
    """The checkpoint holds what is to be sent until the next one: for all receivers."""
    arrive(tmp_path)
    life = Life(tmp_path)
    with pytest.raises(Crash):
        life.run(requests=8)
    saved = checkpoint.load(life.disk.path)
    ((to, k, body),) = saved["outbox"]
    assert (to, k, float(body[0])) == ([0, 1], 1, 6.0)
