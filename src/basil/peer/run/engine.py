"""One node's protocol on a real machine: the same generator, answered by a network and a clock.

The simulator answers the requests of all nodes; this answers those of one.  Scoring, selecting and
training are done here and now; a Send goes to the transport, a Receive waits for real.

A crash at any point loses nothing and contradicts nothing.  What a protocol sends waits for the
checkpoint that it asks for at the same moment; that is written to the disk, with what is to be sent
inside; only then is it sent.  So a node that starts again either has never sent a round, or sends
it again byte for byte.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict
from typing import Any, Protocol, TypeVar

from torch import Tensor

from basil.engine.durations import size_of
from basil.engine.process import Work, compute_now
from basil.host import host
from basil.learning.compute import Compute
from basil.peer.run.inbox import Inbox, Stopped
from basil.peer.run.liveness import Patience, longest_honest
from basil.protocol.drive import Driver
from basil.protocol.requests import (
    Arrival,
    Checkpoint,
    Missing,
    Observe,
    Pretend,
    Receive,
    Record,
    Request,
    Score,
    Send,
)

T = TypeVar("T")
LAGS = 2  # rounds: a node so far behind has been left behind, and rejoins

Post = Callable[[Send], None]
"""Hand a message to the transport; returns at once."""


class Observer(Protocol):
    """Who is told what happens, and keeps the checkpoint."""

    def record(self, record: Record, now: float) -> None: ...

    def save(self) -> None:
        """Force `Engine.snapshot` to the disk; only then may it be sent."""
        ...

    def turned(self) -> None:
        """The messages are on their way: the others do not wait for what is done now."""
        ...


class Behind(Exception):
    """The others have gone on without this node, and are at this round."""

    def __init__(self, round: int) -> None:
        super().__init__(round)
        self.round = round


class Engine:
    """Answers what a protocol asks for."""

    def __init__(
        self,
        inbox: Inbox,
        post: Post,
        compute: Compute,
        *,
        was_due: Callable[[int, int, int], bool] = lambda sender, k, mine: False,
        round_of: Callable[[int], int] = lambda number: number,
        benign: Mapping[int, Tensor] | None = None,
        byzantine: int = 0,
    ) -> None:
        self.inbox, self.post, self.compute = inbox, post, compute
        self.clock = inbox.clock
        self.patience: Patience | None = None
        # Was that sender's model of round k due before this node's turn in round `mine`?
        self.was_due = was_due
        self.round_of = round_of  # the number that a message carries -> the round it belongs to
        # What an omniscient attack can see here: what this node itself has received.
        self.seen = dict(benign or {})
        self.byzantine = byzantine
        self.observer: Observer | None = None
        self.done = Work()
        self.round = 1  # the round that comes next
        self.state: dict[str, Any] | None = None  # to start from, or about to be saved
        self.outbox: list[Send] = []
        self.mark: list[int] = []
        self.since = 0.0
        self.stopped: Callable[[], bool] = lambda: False
        # Somebody is about to be given up: were others waited for, so that it may be here by now?
        self.missed: Callable[[], bool] = lambda: False
        self._gave_up = 0  # the latest round in which somebody was not waited for any longer
        self.busy = 0.0  # real seconds of the last turn, without waiting
        self._worked = 0.0

    def run(self, protocol: Generator[Request, Any, T]) -> T:
        """To the protocol's end.  Raises `Stopped`, or `Behind` if it has to be started anew."""
        driver = Driver(protocol)
        for request in driver:
            if self.stopped():
                raise Stopped
            if self.outbox and not isinstance(request, Send | Checkpoint):
                self._post_all()  # a protocol that keeps no checkpoints, such as sharing
            driver.answer = self._answer(request)
        self._post_all()
        return driver.result

    def _answer(self, request: Request) -> Any:
        match request:
            case Receive():
                return self._receive(request)
            case Send():
                self.outbox.append(request)
                self.done.messages += len(request.to)
                self.done.bytes += size_of(request.body) * len(request.to)
                return self.clock.now()
            case Checkpoint():
                self._checkpoint(request)
                return None
            case Record():
                if self.observer is not None:
                    self.observer.record(request, self.clock.now())
                return None
            case Observe():
                return dict(self.seen)
            case Pretend():  # work that is left out takes no time here
                return None
        begin = host.perf_counter()
        answer = compute_now(self.compute, request, self.done)
        self._worked += host.perf_counter() - begin
        return answer

    # -- messages ----------------------------------------------------------------------------

    def _receive(self, request: Receive) -> Arrival | Missing:
        got = self._take(request.until)
        if isinstance(got, Missing) and self.missed():
            got = self._take(max(request.until, self.clock.now()))
        if isinstance(got, Missing):
            self._gave_up = self.round
            return got
        if isinstance(got.body, Tensor):
            body = self.compute.admit(got.body.to(self.compute.device))
            got = Arrival(got.sender, got.round, body, got.time)
            self._notice(got.sender, got.round)
            self._keep_up()
            if got.sender in self.seen:
                self.seen[got.sender] = body
            if request.score_on is not None and not request.pretend:
                got.losses = self._answer(Score(body, request.score_on))
        return got

    def _take(self, until: float) -> Arrival | Missing:
        while (got := self.inbox.take(until)) is None:
            self._keep_up()
        return got

    def _notice(self, sender: int, k: int) -> None:
        """Was this node given up, though it was on its way?"""
        given_up = self._gave_up
        recent = given_up and self.round_of(k) >= given_up - 1
        if self.patience is not None and recent and self.was_due(sender, k, given_up):
            self.patience.wrong(sender, given_up)

    def _post_all(self) -> None:
        for send in self.outbox:
            self.post(send)
        self.outbox = []

    def post_again(self) -> None:
        """After a restart: what the checkpoint had to send, byte for byte."""
        self._post_all()

    # -- checkpoints -------------------------------------------------------------------------

    def _checkpoint(self, request: Checkpoint) -> None:
        begin = host.perf_counter()
        turned = request.round > self.round
        self.round, self.state = request.round, request.state()
        self.since, self.mark = self.clock.now(), self.inbox.mark()
        if self.observer is not None:
            self.observer.save()
        self.state = None  # it is on the disk; held on to, it would be S models more
        self._post_all()
        self.inbox.forget(self.mark)
        self.busy, self._worked = self._worked + host.perf_counter() - begin, 0.0
        if self.observer is not None:
            self.observer.turned()
        if turned and self.patience is not None:
            self.patience.calm()
        self._keep_up()

    def _keep_up(self) -> None:
        heard = int(longest_honest(map(self.round_of, self.inbox.rounds()), self.byzantine))
        if heard >= self.round + LAGS:
            raise Behind(heard)

    def snapshot(self) -> dict[str, Any]:
        """All that this node needs to go on from its last checkpoint."""
        return {
            "round": self.round,
            "state": self.state,
            "since": self.since,
            "mark": self.mark,
            "given": [[sender, number] for sender, number in self.inbox.given.items()],
            "gave_up": self._gave_up,
            "outbox": [[list(send.to), send.round, send.body] for send in self.outbox],
            "done": asdict(self.done),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        self.round, self.state = saved["round"], saved["state"]
        self.since, self.mark = saved["since"], saved["mark"]
        self.inbox.given.update(saved.get("given", []))  # (checkpoints of old have none)
        self._gave_up = saved.get("gave_up", 0)
        self.outbox = [Send(tuple(to), k, body) for to, k, body in saved["outbox"]]
        self.done = Work(**saved["done"])

    @property
    def heard_nobody(self) -> bool:
        """In the whole run, though somebody was waited for."""
        return self._gave_up > 0 and not self.inbox.given

    def total(self) -> Work:
        return self.done
