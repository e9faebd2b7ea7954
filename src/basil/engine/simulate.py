"""The simulator: all nodes in one process, on a virtual clock.

A discrete-event scheduler.  At each instant it resumes every node for which something has happened,
until all of them wait: for a message, or for work.  Then the work of all nodes that ask at this
instant is done together: the S receivers of a model ask for the loss of the same model at once, so
it is loaded once and evaluated on their S batches.

What happens at one instant is ordered by kind and node, never by history: the same run happens in
the same way every time, also when it is taken up again from a checkpoint.
"""

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from typing import Protocol as Interface

from torch import Tensor

from basil.engine.timing import Timing, size_of
from basil.learning.compute import Compute, Losses
from basil.protocol.requests import (
    Arrival,
    Checkpoint,
    Missing,
    Observe,
    Pretend,
    Protocol,
    Receive,
    Record,
    Score,
    Send,
    Train,
)


class Observer(Interface):
    """Who is told what happens."""

    def record(self, node: int, record: Record, time: float) -> None: ...

    def instant(self, simulator: "Simulator") -> bool:
        """After every instant in which a node finished a round.  False stops the run."""
        ...


@dataclass(frozen=True)
class Absence:
    """A node that is away: it misses the rounds leaves, …, returns − 1 (App. C)."""

    node: int
    leaves: int
    returns: int | None


# At one instant: nodes start, messages arrive, work ends, and only then do deadlines pass.
STARTS, ARRIVES, ENDS, EXPIRES = range(4)

Start = Callable[[int, float, dict[str, Any] | None, int | None], Protocol]
"""Make a node's protocol: node, time, its last checkpoint, the round in which it rejoins."""


@dataclass(eq=False, slots=True)
class Process:
    """A node in the simulator."""

    node: int
    protocol: Protocol | None  # None: the node is away, or has finished
    inbox: deque[Arrival] = field(default_factory=deque)
    waiting: int = 0  # the number of the Receive that it waits in; 0: none
    # What is needed to start it again: its checkpoint, and what has arrived since.
    state: dict[str, Any] | None = None
    since: float = 0.0
    log: list[tuple[float, Arrival]] = field(default_factory=list)
    uncounted: Counter[str] = field(default_factory=Counter)  # work since the checkpoint
    away: bool = False
    link_free: float = 0.0  # when its incoming link has taken in all that is on its way


class Simulator:
    """Runs the protocols of all nodes to their end."""

    def __init__(
        self,
        nodes: Mapping[int, bool],  # node -> is it Byzantine?
        start: Start,
        compute: Compute,
        timing: Timing,
        observer: Observer,
        absences: tuple[Absence, ...] = (),
    ) -> None:
        self.compute = compute
        self.timing = timing
        self.observer = observer
        self.start = start
        self.absences = absences
        self.now = 0.0
        self.counts: Counter[str] = Counter()
        self.benign = [node for node, liar in nodes.items() if not liar]
        self.sent_last: dict[int, Tensor] = dict.fromkeys(self.benign, compute.initial)
        self.round = 0  # the latest round that any node has finished
        self.processes = {node: Process(node, None) for node in nodes}
        self._heap: list[tuple[float, int, int, int, Callable[[], None]]] = []
        self._number = itertools.count(1)
        self._jobs: list[tuple[Process, Score | Train]] = []
        self._in_flight: dict[int, tuple[Arrival, tuple[int, ...]]] = {}
        self._finished_a_round = False

    # -- the clock ---------------------------------------------------------------------------

    def run(self) -> bool:
        """To the end (True), or until the observer stops it (False)."""
        return all(self.instants())

    def instants(self) -> Iterator[bool]:
        """One instant after the other; False, and no more, once the observer stops the run.

        Several simulators can share a device by turns: none of them waits for it.
        """
        if not self._heap:
            for process in self.processes.values():
                process.away = self._leaves(process.node, 1)
                if not process.away:
                    self._begin(process, None, None)
        heap = self._heap
        while heap:
            self.now = heap[0][0]
            while heap and heap[0][0] == self.now:
                heapq.heappop(heap)[-1]()
                if self._jobs and not (heap and heap[0][0] == self.now):
                    self._work()
            if self._finished_a_round:
                self._finished_a_round = False
                if not self.observer.instant(self):
                    yield False
                    return
            yield True
        for process in self.processes.values():
            self._count(process)

    def _at(self, time: float, kind: int, node: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (time, kind, node, next(self._number), act))

    # -- nodes -------------------------------------------------------------------------------

    def _begin(
        self, process: Process, state: dict[str, Any] | None, rejoin_round: int | None
    ) -> None:
        process.protocol = self.start(process.node, self.now, state, rejoin_round)
        process.away = False
        process.since = self.now
        self._at(self.now, STARTS, process.node, lambda: self._resume(process, None))

    def _resume(self, process: Process, answer: Any) -> None:
        """Let a node go on until it waits for something that is not here yet."""
        while process.protocol is not None:
            try:
                request = process.protocol.send(answer)
            except StopIteration:
                process.protocol = None
                return
            match request:
                case Receive():
                    if process.inbox:
                        answer = process.inbox.popleft()
                        continue
                    if request.until <= self.now:
                        answer = Missing(self.now)
                        continue
                    self._wait(process, request)
                    return
                case Score() | Train():
                    self._jobs.append((process, request))
                    return
                case Pretend():
                    self._end(process, request.request, None)
                    return
                case Send():
                    answer = self._send(process, request)
                case Record():
                    answer = None
                    self._record(process, request)
                case Checkpoint():
                    answer = None
                    self._checkpoint(process, request)
                case Observe():
                    answer = list(self.sent_last.values())

    def _wait(self, process: Process, request: Receive) -> None:
        ticket = process.waiting = next(self._number)

        def expire() -> None:
            if process.waiting == ticket:
                process.waiting = 0
                self._resume(process, Missing(self.now))

        self._at(request.until, EXPIRES, process.node, expire)

    # -- messages ----------------------------------------------------------------------------

    def _send(self, process: Process, send: Send) -> float:
        size = size_of(send.body)
        process.uncounted["messages"] += len(send.to)
        process.uncounted["bytes"] += size * len(send.to)
        if process.node in self.sent_last and isinstance(send.body, Tensor):
            self.sent_last[process.node] = send.body
        arrivals: dict[float, list[int]] = {}
        duration = self.timing.link(size)
        for receiver in send.to:  # a link takes in one message after the other (App. G-B)
            target = self.processes[receiver]
            target.link_free = max(self.now, target.link_free) + duration
            arrivals.setdefault(target.link_free, []).append(receiver)
        for time, receivers in arrivals.items():
            arrival = Arrival(process.node, send.round, send.body, time)
            self._dispatch(arrival, tuple(receivers))
        return self.now

    def _dispatch(self, arrival: Arrival, receivers: tuple[int, ...]) -> None:
        number = next(self._number)
        self._in_flight[number] = (arrival, receivers)

        def deliver() -> None:
            del self._in_flight[number]
            for receiver in receivers:
                self._deliver(self.processes[receiver], arrival)

        self._at(arrival.time, ARRIVES, arrival.sender, deliver)

    def _deliver(self, process: Process, arrival: Arrival) -> None:
        if process.protocol is None:
            return
        process.log.append((self.now, arrival))
        if process.waiting:
            process.waiting = 0
            self._resume(process, arrival)
        else:
            process.inbox.append(arrival)

    # -- work --------------------------------------------------------------------------------

    def _work(self) -> None:
        """Do what all nodes have asked for at this instant."""
        jobs, self._jobs = self._jobs, []
        scores: dict[int, list[tuple[Process, Score]]] = {}
        for process, job in jobs:
            if isinstance(job, Score):
                scores.setdefault(id(job.model), []).append((process, job))
            else:
                model = self.compute.train(job.model, job.batches, job.rate, job.key)
                process.uncounted["steps"] += len(job.batches)
                self._end(process, job, model)
        for group in scores.values():
            losses = self.compute.score(group[0][1].model, [job.batch for _, job in group])
            for (process, job), answer in zip(group, losses, strict=True):
                process.uncounted["evaluations"] += 1
                self._end(process, job, answer)

    def _end(self, process: Process, job: Score | Train, answer: Tensor | Losses | None) -> None:
        later = self.now + self.timing.compute(job)
        self._at(later, ENDS, process.node, lambda: self._resume(process, answer))

    # -- rounds, absences, checkpoints -------------------------------------------------------

    def _record(self, process: Process, record: Record) -> None:
        self._finished_a_round = True
        self.observer.record(process.node, record, self.now)
        if record.round > self.round:
            self.round = record.round
            for absence in self.absences:
                if absence.returns == record.round + 1:
                    returning = self.processes[absence.node]
                    self._begin(returning, returning.state, absence.returns)

    def _checkpoint(self, process: Process, checkpoint: Checkpoint) -> None:
        process.state = checkpoint.state
        process.since = self.now
        process.log = [(self.now, arrival) for arrival in process.inbox]
        self._count(process)
        if self._leaves(process.node, checkpoint.round):
            process.protocol, process.away = None, True
            process.inbox.clear()
            process.log.clear()

    def _leaves(self, node: int, k: int) -> bool:
        return any(a.node == node and a.leaves == k for a in self.absences)

    def _count(self, process: Process) -> None:
        self.counts.update(process.uncounted)
        process.uncounted.clear()

    def snapshot(self) -> dict[str, Any]:
        """All that is needed to go on from the present instant."""
        return {
            "round": self.round,
            "counts": dict(self.counts),
            "sent_last": {str(node): model for node, model in self.sent_last.items()},
            "processes": [
                {
                    "node": p.node,
                    "running": p.protocol is not None,
                    "away": p.away,
                    "state": p.state,
                    "since": p.since,
                    "log": [[time, *_fields(arrival)] for time, arrival in p.log],
                    "link_free": p.link_free,
                }
                for p in self.processes.values()
            ],
            "in_flight": [
                [list(receivers), *_fields(arrival)]
                for arrival, receivers in self._in_flight.values()
            ],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Put a snapshot back; `run` then goes on from there.

        Each node starts again from its own checkpoint, at that moment, and is told again what it
        has been told since.  Since it sends nothing between a checkpoint and the next, it gets to
        where it was without anybody noticing.
        """
        self.round = snapshot["round"]
        self.counts = Counter(snapshot["counts"])
        self.sent_last = {int(node): model for node, model in snapshot["sent_last"].items()}
        for saved in snapshot["processes"]:
            process = self.processes[saved["node"]]
            process.away, process.state = saved["away"], saved["state"]
            process.since, process.link_free = saved["since"], saved["link_free"]
            if saved["running"]:
                self._start_again(process, saved["log"])
        for receivers, *fields in snapshot["in_flight"]:
            self._dispatch(Arrival(*fields), tuple(receivers))

    def _start_again(self, process: Process, log: list[list[Any]]) -> None:
        process.protocol = self.start(process.node, process.since, process.state, None)
        self._at(process.since, STARTS, process.node, lambda: self._resume(process, None))
        for time, *fields in log:
            arrival = Arrival(*fields)
            self._at(time, ARRIVES, arrival.sender, partial(self._deliver, process, arrival))


def _fields(arrival: Arrival) -> list[Any]:
    return [arrival.sender, arrival.round, arrival.body, arrival.time]
