"""The simulator: all nodes in one process, on a virtual clock.

A discrete-event scheduler.  At each instant it resumes every node for which something has happened,
until all of them wait: for a message, or for work.  Then the work of all nodes that ask at this
instant is done together (`jobs.py`).

What happens at one instant is ordered by kind and node, never by history: the same run happens in
the same way every time, also when it is taken up again from a checkpoint.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any
from typing import Protocol as Interface

from torch import Tensor

from basil.engine.deadlines import Deadlines
from basil.engine.durations import NOTE_BYTES, Durations, size_of
from basil.engine.full_pace import full_pace
from basil.engine.jobs import Jobs, ToScore
from basil.engine.process import Absence, Process, Work, compute_now
from basil.learning.compute import Compute
from basil.protocol.numbering import RING
from basil.protocol.requests import (
    Arrival,
    Checkpoint,
    Combine,
    Fetch,
    Missing,
    Observe,
    Pretend,
    Protocol,
    Receive,
    Record,
    Score,
    ScoreAll,
    Select,
    Send,
    Train,
)


class Observer(Interface):
    """Who is told what happens."""

    def record(self, node: int, record: Record, time: float) -> None: ...

    def instant(self, simulator: "Simulator") -> bool:
        """After every instant in which a node finished a round.  False stops the run."""
        ...


# At one instant: nodes start, messages arrive, work ends, and only then do deadlines pass.  Who
# looks at the others' models looks last: at what all of them have sent up to this instant.
STARTS, ARRIVES, ENDS, EXPIRES, OBSERVES = range(5)

Start = Callable[[int, float, dict[str, Any] | None, int | None], Protocol]
"""Make a node's protocol: node, time, its last checkpoint, the round in which it rejoins."""


class Simulator:
    """Runs the protocols of all nodes to their end."""

    def __init__(
        self,
        nodes: Mapping[int, bool],  # node -> is it Byzantine?
        start: Start,
        compute: Compute,
        timing: Durations,
        observer: Observer,
        absences: tuple[Absence, ...] = (),
    ) -> None:
        self.compute = compute
        self.timing = timing
        self.observer = observer
        self.start = start
        self.absences = absences
        self.now = 0.0
        self.done = Work()
        self.benign = [node for node, is_byzantine in nodes.items() if not is_byzantine]
        self.sent_last: dict[int, Tensor] = dict.fromkeys(self.benign, compute.initial)
        self.round = 0  # the latest round that any node has finished
        self.processes = {node: Process(node, None) for node in nodes}
        self._heap: list[tuple[float, int, int, int, Callable[[], None]]] = []
        self._number = itertools.count(1)
        self._jobs = Jobs(
            compute,
            timing,
            lambda seconds, node, act: self._at(self.now + seconds, ENDS, node, act),
            self._resume,
        )
        self._deadlines = Deadlines(
            lambda time, node, act: self._at(time, EXPIRES, node, act), self._expire
        )
        self._departures = {(a.node, a.leaves, a.stage): a for a in absences}
        self._in_flight: dict[int, tuple[Arrival, tuple[int, ...]]] = {}
        self._finished_a_round = False
        self._begun = False

    # -- the clock ---------------------------------------------------------------------------

    def run(self) -> bool:
        """To the end (True), or until the observer stops it (False)."""
        with full_pace():
            return all(self.instants())

    def instants(self) -> Iterator[bool]:
        """One instant after the other; False, and no more, once the observer stops the run.

        Several simulators can share a device by turns: none of them waits for it.  Also before
        anybody looks at what is to be done with what others ask for: it is done when this one goes
        on, or before.
        """
        if not self._begun:
            self._begun = True
            for process in self.processes.values():
                process.away = (process.node, 1, RING) in self._departures
                if not process.away:
                    self._begin(process, None, None)
        heap, jobs = self._heap, self._jobs
        while heap:
            self.now = heap[0][0]
            while heap and heap[0][0] == self.now:
                heapq.heappop(heap)[-1]()
                if jobs and not (heap and heap[0][0] == self.now):
                    with self.compute.later():
                        jobs.do()
                if jobs.awaited:
                    jobs.awaited = False
                    if self.compute.waits():
                        yield True
                        self.compute.catch_up()
            if self._finished_a_round:
                self._finished_a_round = False
                if not self.observer.instant(self):
                    yield False
                    return
            yield True
        self.compute.catch_up()
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
        protocol = process.protocol
        if protocol is None:
            return
        while True:
            try:
                request = protocol.send(answer)
            except StopIteration:
                process.protocol = None
                return
            answer = None
            match request:
                case Receive():
                    if process.inbox:
                        arrival = process.inbox.popleft()
                        if request.score_on is None or not isinstance(arrival.body, Tensor):
                            self.compute.catch_up()  # it may be looked at
                            answer = arrival
                            continue
                        batch = None if request.pretend else request.score_on
                        self._jobs.score(arrival.body, [(process, batch, arrival)])
                    elif request.until <= self.now:
                        answer = Missing(self.now)
                        continue
                    else:
                        process.receive = request
                        self._deadlines.set(process, self.now)
                    return
                case Train():
                    self._jobs.train(process, request)
                    return
                case Select():
                    answer = compute_now(self.compute, request, process.done)
                case Send():
                    answer = self._send(process, request)
                case Record():
                    self._record(process, request)
                case Checkpoint():
                    self._checkpoint(process, request)
                    if process.protocol is not protocol:
                        return  # it has left here, and may have returned with a new protocol
                case Score():
                    self._jobs.score(request.model, [(process, request.batch, None)])
                    return
                case Combine(unseen=True) if not self.timing.compute(request):
                    with self.compute.later():
                        answer = compute_now(self.compute, request, process.done)
                case ScoreAll() | Combine():
                    with self.compute.later():
                        made = compute_now(self.compute, request, process.done)
                    self._jobs.end(process, request, made)
                    return
                case Fetch(count, parameters):
                    process.done.messages += 2 * count
                    process.done.bytes += count * (NOTE_BYTES + 4 * parameters)
                    self._jobs.end(process, request, None)
                    return
                case Pretend():
                    self._jobs.end(process, request.request, None, request.unseen)
                    return
                case Observe():
                    self._at(self.now, OBSERVES, process.node, lambda: self._observe(process))
                    return

    def _observe(self, process: Process) -> None:
        self.compute.catch_up()
        self._resume(process, self.sent_last.copy())

    def _expire(self, process: Process) -> None:
        process.receive = None
        self._resume(process, Missing(self.now))

    # -- messages ----------------------------------------------------------------------------

    def _send(self, process: Process, send: Send) -> float:
        size, body = 4 * send.announced or size_of(send.body), send.body
        if isinstance(body, Tensor):  # each receiver would do it, and all of them alike
            with self.compute.later():
                body = self.compute.admit(body)
        process.done.messages += len(send.to)
        process.done.bytes += size * len(send.to)
        if process.node in self.sent_last and isinstance(body, Tensor):
            self.sent_last[process.node] = body
        arrivals: dict[float, list[int]] = {}
        now, duration = self.now, self.timing.link(size)
        for receiver in send.to:  # a link takes in one message after the other (App. G-B)
            target = self.processes[receiver]
            free = target.link_free
            target.link_free = there = (free if free > now else now) + duration
            arrivals.setdefault(there, []).append(receiver)
        for time, receivers in arrivals.items():
            arrival = Arrival(process.node, send.round, body, time)
            self._dispatch(arrival, tuple(receivers))
        return self.now

    def _dispatch(self, arrival: Arrival, receivers: tuple[int, ...]) -> None:
        number = next(self._number)
        self._in_flight[number] = (arrival, receivers)

        def deliver() -> None:
            del self._in_flight[number]
            self._deliver(arrival, receivers)

        self._at(arrival.time, ARRIVES, arrival.sender, deliver)

    def _deliver(self, arrival: Arrival, receivers: tuple[int, ...]) -> None:
        model = arrival.body if isinstance(arrival.body, Tensor) else None
        scores: list[ToScore] = []
        for receiver in receivers:
            process = self.processes[receiver]
            if process.protocol is None:
                continue
            process.log.append(arrival)
            waiting = process.receive
            if waiting is None:
                process.inbox.append(arrival)
                continue
            process.receive = None
            if waiting.score_on is None or model is None:
                self.compute.catch_up()  # as above
                self._resume(process, arrival)
            else:
                batch = None if waiting.pretend else waiting.score_on
                scores.append((process, batch, arrival))
        if model is not None and scores:  # after what receivers that do not score have asked for
            self._jobs.score(model, scores)

    # -- rounds, absences, checkpoints -------------------------------------------------------

    def _record(self, process: Process, record: Record) -> None:
        self._finished_a_round = True
        self.observer.record(process.node, record, self.now)
        if record.last and record.round > self.round:
            self.round = record.round
            for absence in self.absences:
                if absence.returns == record.round + 1:
                    self._return(self.processes[absence.node], absence.returns)

    def _return(self, process: Process, k: int) -> None:
        if process.away:  # not one that is so late that it has yet to leave
            self._begin(process, process.state and process.state(), k)

    def _checkpoint(self, process: Process, checkpoint: Checkpoint) -> None:
        process.state = checkpoint.state
        process.since = self.now
        process.log = list(process.inbox)
        self._count(process)
        left = self._departures.get((process.node, checkpoint.round, checkpoint.stage))
        if left is not None:
            process.protocol, process.away = None, True
            process.inbox.clear()
            process.log.clear()
            if left.returns is not None and self.round + 1 >= left.returns:  # so late was it
                self._return(process, left.returns)

    def _count(self, process: Process) -> None:
        self.done.add(process.done)
        process.done = Work()

    def total(self) -> Work:
        """All that was done so far, in rounds that are not finished too."""
        total = Work()
        total.add(self.done)
        for process in self.processes.values():
            total.add(process.done)
        return total

    def snapshot(self) -> dict[str, Any]:
        """All that is needed to go on from the present instant."""
        self.compute.catch_up()
        return {
            "round": self.round,
            "done": asdict(self.done),
            "sent_last": {str(node): model for node, model in self.sent_last.items()},
            "processes": [
                {
                    "node": p.node,
                    "running": p.protocol is not None,
                    "away": p.away,
                    "state": p.state and p.state(),
                    "since": p.since,
                    "log": [_fields(arrival) for arrival in p.log],
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
        self._begun = True  # also where all have finished, and nothing is left to do
        self.round = snapshot["round"]
        self.done = Work(**snapshot["done"])
        self.sent_last = {int(node): model for node, model in snapshot["sent_last"].items()}
        for saved in snapshot["processes"]:
            process = self.processes[saved["node"]]
            process.away = saved["away"]
            process.state = partial(dict, saved["state"]) if saved["state"] else None
            process.since, process.link_free = saved["since"], saved["link_free"]
            if saved["running"]:
                self._start_again(process, saved["log"])
        for receivers, *fields in snapshot["in_flight"]:
            self._dispatch(Arrival(*fields), tuple(receivers))

    def _start_again(self, process: Process, log: list[list[Any]]) -> None:
        state = process.state and process.state()
        process.protocol = self.start(process.node, process.since, state, None)
        self._at(process.since, STARTS, process.node, lambda: self._resume(process, None))
        for fields in log:
            arrival = Arrival(*fields)
            if arrival.time <= process.since:  # it waited there already, behind those before it
                process.inbox.append(arrival)
                process.log.append(arrival)
                continue
            again = partial(self._deliver, arrival, (process.node,))
            self._at(arrival.time, ARRIVES, arrival.sender, again)


def _fields(arrival: Arrival) -> list[Any]:
    return [arrival.sender, arrival.round, arrival.body, arrival.time]
