"""Writes down what happens in a run, evaluates it now and then, and keeps a checkpoint."""

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from torch import Tensor

from basil.errors import UserError
from basil.host import host
from basil.learning.promises import Promise, Selection
from basil.protocol.numbering import RING
from basil.protocol.requests import Record
from basil.record import checkpoint
from basil.record.callback import Callback
from basil.record.evaluate import Evaluation, evaluate
from basil.record.run_folder import CHECKPOINT, CHECKPOINT_BEFORE, JOINS, METRICS, SELECTIONS
from basil.topology import Ring


class Done(Protocol):
    """What an engine counts."""

    messages: int
    bytes: int
    evaluations: int
    steps: int
    distances: int


class Engine(Protocol):
    """An engine that can say where it stands, and what it has done."""

    def snapshot(self) -> dict[str, Any]: ...

    def total(self) -> Done: ...


@dataclass(frozen=True)
class Progress:
    """What a progress bar wants to know."""

    round: int
    rounds: int
    turns: int  # of benign nodes, so far
    all_turns: int  # that there will be, if nobody is away
    accuracy: float | None  # worst benign, last time it was measured
    success: float | None = None  # of a backdoor, on the benign node where it is highest


@dataclass(frozen=True, eq=False)
class Reports:
    """Whose reports a run is made of, and when a round is complete."""

    nodes: Sequence[int]
    byzantine: frozenset[int]
    ring_of: Callable[[int], Ring]
    rounds: int
    expected: Callable[[int], int]  # how many nodes take part in a round


@dataclass(frozen=True, eq=False)
class Hooks:
    """Who hears of a run while it goes on, and who may stop it at the end of a turn."""

    progress: Callable[[Progress], None] | None = None
    stop: Callable[[], bool] = lambda: False
    callbacks: Sequence[Callback] = ()


FILES = {METRICS: "metrics", SELECTIONS: "selections", JOINS: "joins"}  # as a checkpoint says
WORK = ("messages", "bytes", "evaluations", "steps", "distances")


class Recorder:
    """The observer of a run.

    A round is over when every node that takes part in it has reported it.  On a graph some nodes
    are rounds ahead of others: what they report waits, so that all models of an evaluation are of
    one round.  What is written is flushed with each checkpoint; a run that is taken up again cuts
    its files back to that point, so nothing is there twice.
    """

    def __init__(
        self,
        folder: Path,
        reports: Reports,
        evaluation: Evaluation,
        hooks: Hooks,
        checkpoint_seconds: float,  # from one checkpoint to the next
    ) -> None:
        self.folder = folder
        self.reports = reports
        self.evaluation = evaluation
        self.hooks = hooks
        self.checkpoint_seconds = checkpoint_seconds
        self.models: dict[int, Tensor] = {
            node: evaluation.compute.initial
            for node in reports.nodes
            if node not in reports.byzantine
        }
        self.round = 0  # the latest that is over
        self.evaluated = -1
        self.time = 0.0  # virtual, of the last turn
        self.counts: Counter[str] = Counter()
        self.last: dict[str, Any] = {}  # the newest line of metrics.jsonl
        self._reported: Counter[int] = Counter()  # by round, of those that are not over
        self._waiting: dict[int, dict[int, Tensor]] = {}  # round -> node -> model
        self._unread: list[tuple[int, Record, Selection]] = []  # node, what it chose
        self._later: list[Callable[[], None]] = []  # what is to be written once it is known
        self._seconds = 0.0  # spent before this process took the run up
        self._started = host.monotonic()
        self._saved = -math.inf  # the first comes at once: of models that are all alike

    def __enter__(self) -> "Recorder":
        new = self._seconds == 0.0 and self.evaluated < 0
        mode = "w" if new else "a"
        self._joins: IO[str] | None = None
        with ExitStack() as self._files:
            if (self.folder / JOINS).exists():
                self._joins = self._open(JOINS, "a")
            self._metrics = self._open(METRICS, mode)
            self._selections = self._open(SELECTIONS, mode)
            if new:
                self._selections.write("round,node,chosen,byzantine\n")
                self._evaluate(None)
                self._settle()
            self._files = self._files.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _open(self, name: str, mode: str) -> IO[str]:
        return self._files.enter_context((self.folder / name).open(mode, encoding="utf-8"))

    @property
    def seconds(self) -> float:
        return self._seconds + host.monotonic() - self._started

    def record(self, node: int, record: Record, now: float) -> None:
        self.time = now
        if record.selected is not None:
            self._unread.append((node, record, record.selected))
        self._reported[record.round] += record.last
        if node in self.reports.byzantine or not record.last:
            return
        self._waiting.setdefault(record.round, {})[node] = record.model
        self.counts["turns"] += 1
        if self.hooks.progress:
            accuracy = self.last.get("accuracy", {}).get("worst")
            success = self.last.get("attack_success", {}).get("worst")
            turns, rounds = self.counts["turns"], self.reports.rounds
            all_turns = rounds * len(self.models)
            self.hooks.progress(Progress(record.round, rounds, turns, all_turns, accuracy, success))

    def _end_round(self, engine: Engine) -> None:
        self.round += 1
        self._reported.pop(self.round, None)
        self.models.update(self._waiting.pop(self.round, {}))
        self._settle()  # what was asked of a GPU a round ago is here by now
        self._read_selections()
        if self.evaluation.due(self.round):
            self._evaluate(engine.total())
        if not self.evaluation.compute.late:
            self._settle()

    def _settle(self) -> None:
        """Write down what has been asked for, waiting for it where it is not here yet."""
        self._read_selections()
        later, self._later = self._later, []
        for write in later:
            write()

    def _read_selections(self) -> None:
        unread, self._unread = self._unread, []
        if unread:
            indices = self.evaluation.compute.indices([selected for *_, selected in unread])
            made = [(r.round, r.stage, node, r.senders) for node, r, _ in unread]
            self._later.append(partial(self._write_selections, made, indices))

    def _write_selections(
        self, made: list[tuple[int, str, int, tuple[int | None, ...]]], indices: Promise[list[int]]
    ) -> None:
        """Who chose whom."""
        for (k, stage, node, senders), index in zip(made, indices.wait(), strict=True):
            chosen, is_byzantine = senders[index], node in self.reports.byzantine
            row = f"{node},{'' if chosen is None else chosen},{int(is_byzantine)}\n"
            if stage == RING:
                self._selections.write(f"{k},{row}")
            else:
                self._write_join(f"{k},{stage},{row}")
            if is_byzantine:
                continue
            before = "" if stage == RING else f"{stage} "
            self.counts[f"{before}choices"] += 1
            self.counts[f"{before}byzantine"] += chosen in self.reports.byzantine
            if chosen is not None and stage == RING:
                self.counts["nearest"] += self.reports.ring_of(node).distance(chosen, node) == 1
        self._selections.flush()  # once a round: whoever looks on sees it

    def _write_join(self, row: str) -> None:
        """A choice between groups, in a file that there is only where such choices are made."""
        if self._joins is None:
            self._joins = self._open(JOINS, "w")
            self._joins.write("round,stage,node,chosen,byzantine\n")
        self._joins.write(row)

    def _evaluate(self, done: Done | None) -> None:
        self.evaluated = self.round
        found = evaluate(self.models.values(), self.evaluation)
        known = {
            **{what: getattr(done, what, 0) for what in WORK},
            "virtual_seconds": self.time,
        }
        self._later.append(partial(self._write_metrics, self.round, found, known))

    def _write_metrics(self, k: int, found: Promise[dict[str, Any]], known: dict[str, Any]) -> None:
        self.last = {
            "round": k,
            **found.wait(),
            **known,
            "seconds": round(self.seconds, 3),
        }
        self._metrics.write(json.dumps(self.last) + "\n")
        self._metrics.flush()
        for callback in self.hooks.callbacks:
            callback.measured(self.last)

    def end_rounds(self, engine: Engine) -> None:
        """Close the rounds that all have reported who take part."""
        expected = self.reports.expected
        while self._reported and self._reported[self.round + 1] >= expected(self.round + 1):
            self._end_round(engine)

    def instant(self, engine: Engine) -> bool:
        self.end_rounds(engine)
        stop = self.hooks.stop()
        if stop or host.monotonic() - self._saved >= self.checkpoint_seconds:
            self.save(engine, keep_before=True)
        return not stop

    def finish(self, engine: Engine) -> None:
        """Close what is still open: a node that was expected may have stayed away."""
        while self.round < self.reports.rounds:
            self._end_round(engine)
        self._settle()

    def save(self, engine: Engine, keep_before: bool = False) -> None:
        """keep_before: who may be heard by others must not go back to an older checkpoint."""
        self._settle()
        # A checkpoint says how long these files are: that must hold after a power cut.
        files = [self._metrics, self._selections, *([self._joins] if self._joins else [])]
        for file in files:
            file.flush()
        for file in files:
            host.disk.fsync(file.fileno())
        mine = {
            "round": self.round,
            "evaluated": self.evaluated,
            "time": self.time,
            "counts": dict(self.counts),
            "last": self.last,
            "models": {str(node): model for node, model in self.models.items()},
            "reports": dict(self._reported),
            "waiting": self._waiting,
            "seconds": self.seconds,
            "metrics": self._metrics.tell(),
            "selections": self._selections.tell(),
            "joins": 0 if self._joins is None else self._joins.tell(),
        }
        tree = {"engine": engine.snapshot(), "recorder": mine}
        before = self.folder / CHECKPOINT_BEFORE if keep_before else None
        checkpoint.save(self.folder / CHECKPOINT, tree, durable=True, before=before)
        self._saved = host.monotonic()

    def restore(self, saved: dict[str, Any]) -> None:
        self.round, self.evaluated = saved["round"], saved["evaluated"]
        self.time, self.last = saved["time"], saved["last"]
        self.counts = Counter(saved["counts"])
        self.models = {int(node): model for node, model in saved["models"].items()}
        self._reported = Counter({int(k): count for k, count in saved["reports"].items()})
        self._waiting = {
            int(k): {int(node): model for node, model in models.items()}
            for k, models in saved["waiting"].items()
        }
        self._seconds, self._saved = saved["seconds"], host.monotonic()
        lengths = {name: saved[key] for name, key in FILES.items()}
        for name, length in lengths.items():
            self._check(name, length)
        for name, length in lengths.items():
            if not length:  # nothing had been written: what is there now is of no account
                (self.folder / name).unlink(missing_ok=True)
                continue
            with (self.folder / name).open("r+b") as file:
                file.truncate(length)

    def _check(self, name: str, length: int) -> None:
        """Is all of a file here that was written before the checkpoint?"""
        path = self.folder / name
        there = path.stat().st_size if path.exists() else None
        if length > (there or 0):
            what = "gone" if there is None else f"cut off after {there} of {length} bytes"
            raise UserError(f"{self.folder} cannot go on: its {name} is {what}; run it anew")
