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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any
from typing import Protocol as Interface

from torch import Tensor

from basil.engine.collector import unhurried_collector
from basil.engine.deadlines import Deadlines
from basil.engine.process import Absence, Process, Work
from basil.engine.timing import Timing, size_of
from basil.learning.compute import Compute
from basil.learning.pool import Batch
from basil.learning.promises import Losses
from basil.protocol.calendar import RING
from basil.protocol.requests import (
    Arrival,
    Checkpoint,
    Combine,
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

ToScore = tuple[Process, Tensor, Batch | None, Arrival | None]
"""Who asks, which model, on what (None: it only takes the time); the arrival that its losses are
handed over with, if any."""

Start = Callable[[int, float, dict[str, Any] | None, int | None], Protocol]
"""Make a node's protocol: node, time, its last checkpoint, the round in which it rejoins."""


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
        self.done = Work()
        self.benign = [node for node, liar in nodes.items() if not liar]
        self.sent_last: dict[int, Tensor] = dict.fromkeys(self.benign, compute.initial)
        self.round = 0  # the latest round that any node has finished
        self.processes = {node: Process(node, None) for node in nodes}
        self._heap: list[tuple[float, int, int, int, Callable[[], None]]] = []
        self._number = itertools.count(1)
        self._trains: list[tuple[Process, Train]] = []
        # Models to be scored, by identity.
        self._scores: dict[int, list[ToScore]] = {}
        self._deadlines = Deadlines(self._at_last, self._expire)
        self._departures = {(a.node, a.leaves, a.stage) for a in absences}
        self._in_flight: dict[int, tuple[Arrival, tuple[int, ...]]] = {}
        self._finished_a_round = False
        self._begun = False

    # -- the clock ---------------------------------------------------------------------------

    def run(self) -> bool:
        """To the end (True), or until the observer stops it (False)."""
        with unhurried_collector():
            return all(self.instants())

    def instants(self) -> Iterator[bool]:
        """One instant after the other; False, and no more, once the observer stops the run.

        Several simulators can share a device by turns: none of them waits for it.
        """
        if not self._begun:
            self._begun = True
            for process in self.processes.values():
                process.away = (process.node, 1, RING) in self._departures
                if not process.away:
                    self._begin(process, None, None)
        heap = self._heap
        while heap:
            self.now = heap[0][0]
            while heap and heap[0][0] == self.now:
                heapq.heappop(heap)[-1]()
                if (self._scores or self._trains) and not (heap and heap[0][0] == self.now):
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

    def _at_last(self, time: float, node: int, act: Callable[[], None]) -> None:
        """What passes only if nothing else happens at this instant."""
        self._at(time, EXPIRES, node, act)

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
        # A node that leaves at a checkpoint may return at once, with a protocol that starts anew.
        while protocol is not None and process.protocol is protocol:
            try:
                request = protocol.send(answer)
            except StopIteration:
                process.protocol = None
                return
            match request:
                case Receive():
                    if process.inbox:
                        arrival = process.inbox.popleft()
                        if request.score_on is None or not isinstance(arrival.body, Tensor):
                            answer = arrival
                            continue
                        batch = None if request.pretend else request.score_on
                        self._to_score(process, arrival.body, batch, arrival)
                    elif request.until <= self.now:
                        answer = Missing(self.now)
                        continue
                    else:
                        process.receive = request
                        self._deadlines.set(process, request.until, self.now)
                    return
                case Train():
                    self._trains.append((process, request))
                    return
                case Score():
                    self._to_score(process, request.model, request.batch, None)
                    return
                case ScoreAll():
                    process.done.evaluations += len(request.models)
                    losses = self.compute.score_all(request.models, request.batch)
                    self._end(process, request, losses)
                    return
                case Select():
                    answer = self.compute.select(
                        request.models, request.losses, request.own, request.pick
                    )
                case Pretend():
                    self._end(process, request.request, None)
                    return
                case Combine():
                    process.done.distances += request.distances
                    made = self.compute.combine(request.work, request.args)
                    self._end(process, request, made)
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
                    look = partial(self._observe, process)
                    self._at(self.now, OBSERVES, process.node, look)
                    return

    def _observe(self, process: Process) -> None:
        self._resume(process, self.sent_last.copy())

    def _expire(self, process: Process, waiting: Receive | None) -> None:
        if waiting is not None and process.receive is waiting:
            process.receive = None
            self._resume(process, Missing(self.now))

    # -- messages ----------------------------------------------------------------------------

    def _send(self, process: Process, send: Send) -> float:
        size, body = size_of(send.body), send.body
        if isinstance(body, Tensor):  # each receiver would do it, and all of them alike
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
            if there in arrivals:
                arrivals[there].append(receiver)
            else:
                arrivals[there] = [receiver]
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
                self._resume(process, arrival)
            else:
                batch = None if waiting.pretend else waiting.score_on
                process.done.evaluations += batch is not None
                scores.append((process, model, batch, arrival))
        if scores:
            self._scores.setdefault(id(model), []).extend(scores)

    # -- work --------------------------------------------------------------------------------

    def _to_score(
        self, process: Process, model: Tensor, batch: Batch | None, arrival: Arrival | None
    ) -> None:
        process.done.evaluations += batch is not None
        self._scores.setdefault(id(model), []).append((process, model, batch, arrival))

    def _work(self) -> None:
        """Do what all nodes have asked for at this instant."""
        trains, self._trains = self._trains, []
        scores, self._scores = self._scores, {}
        models = self.compute.train_together([job for _, job in trains]) if trains else []
        for (process, job), model in zip(trains, models, strict=True):
            process.done.steps += len(job.batches)
            self._end(process, job, model)
        for group in scores.values():
            batches = [batch for _, _, batch, _ in group if batch is not None]
            losses = self.compute.score(group[0][1], batches) if batches else []
            later = self.now + self.timing.forward
            self._at(later, ENDS, group[0][0].node, partial(self._scored, group, losses))

    def _scored(self, group: list[ToScore], losses: list[Losses]) -> None:
        scored, last = iter(losses), None
        for process, _, batch, arrival in group:
            answer = None if batch is None else next(scored)
            if arrival is None:
                self._resume(process, answer)
                continue
            if arrival is not last:  # all receivers of a model have the same
                sender, k, body, time = arrival.sender, arrival.round, arrival.body, arrival.time
                last = arrival
            self._resume(process, Arrival(sender, k, body, time, answer))

    def _end(self, process: Process, job: Score | ScoreAll | Train | Combine, answer: Any) -> None:
        later = self.now + self.timing.compute(job)
        self._at(later, ENDS, process.node, lambda: self._resume(process, answer))

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
        if (process.node, checkpoint.round, checkpoint.stage) in self._departures:
            process.protocol, process.away = None, True
            process.inbox.clear()
            process.log.clear()
            for absence in self.absences:
                left = absence.node, absence.leaves, absence.stage
                late = absence.returns is not None and self.round + 1 >= absence.returns
                if late and left == (process.node, checkpoint.round, checkpoint.stage):
                    self._return(process, absence.returns or 0)

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
            process.state = partial(_given, saved["state"]) if saved["state"] else None
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
            # What had arrived before the checkpoint and was not taken in yet arrives after it.
            time = max(arrival.time, process.since)
            again = partial(self._deliver, arrival, (process.node,))
            self._at(time, ARRIVES, arrival.sender, again)


def _fields(arrival: Arrival) -> list[Any]:
    return [arrival.sender, arrival.round, arrival.body, arrival.time]


def _given(state: dict[str, Any]) -> dict[str, Any]:
    return state
