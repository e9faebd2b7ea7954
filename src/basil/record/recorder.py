"""Writes down what happens in a run, evaluates it now and then, and keeps a checkpoint."""

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from basil.learning.compute import Compute
from basil.learning.pool import Pool
from basil.learning.promises import Selection
from basil.protocol.requests import Record
from basil.record import checkpoint
from basil.record.evaluate import evaluate
from basil.record.run_folder import CHECKPOINT, METRICS, SELECTIONS
from basil.topology import Ring


class Snapshots(Protocol):
    """An engine that can say where it stands."""

    def snapshot(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Progress:
    """What a progress bar wants to know."""

    round: int
    rounds: int
    turns: int  # of benign nodes, so far
    accuracy: float | None  # worst benign, last time it was measured
    success: float | None = None  # of a backdoor, on the benign node where it is highest


class Recorder:
    """The observer of a run.

    A round is over when the first node reports the next one: by then every node that still takes
    part has had its turn.  What is written is flushed with each checkpoint; a run that is taken up
    again cuts its files back to that point, so nothing is there twice.
    """

    def __init__(
        self,
        folder: Path,
        *,
        ring: Ring,
        byzantine: frozenset[int],
        rounds: int,
        every: int,
        compute: Compute,
        test: Pool,
        test_samples: int,
        triggered: Pool | None = None,
        checkpoint_seconds: float,
        progress: Callable[[Progress], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.folder = folder
        self.ring = ring
        self.byzantine = byzantine
        self.rounds = rounds
        self.every = every
        self.compute = compute
        self.test = test
        self.test_samples = test_samples
        self.triggered = triggered
        self.checkpoint_seconds = checkpoint_seconds
        self.progress = progress
        self.stop = stop
        self.models: dict[int, Tensor] = {
            node: compute.initial for node in ring.order if node not in byzantine
        }
        self.round = 0  # the latest that any node has finished
        self.evaluated = -1
        self.time = 0.0  # virtual, of the last turn
        self.counts: Counter[str] = Counter()
        self.last: dict[str, Any] = {}  # the newest line of metrics.jsonl
        self._unread: list[tuple[int, int, tuple[int | None, ...], Selection]] = []
        self._seconds = 0.0  # spent before this process took the run up
        self._started = self._saved = time.monotonic()

    def __enter__(self) -> "Recorder":
        new = self._seconds == 0.0 and self.evaluated < 0
        mode = "w" if new else "a"
        self._metrics = (self.folder / METRICS).open(mode, encoding="utf-8")
        self._selections = (self.folder / SELECTIONS).open(mode, encoding="utf-8")
        if new:
            self._selections.write("round,node,chosen,byzantine\n")
            self._evaluate()
        return self

    def __exit__(self, *_: object) -> None:
        self._metrics.close()
        self._selections.close()

    @property
    def seconds(self) -> float:
        return self._seconds + time.monotonic() - self._started

    def record(self, node: int, record: Record, now: float) -> None:
        if record.round > self.round:
            self._end_round()
            self.round = record.round
        self.time = now
        self._unread.append((record.round, node, record.senders, record.selected))
        if node in self.byzantine:
            return
        self.models[node] = record.model
        self.counts["turns"] += 1
        if self.progress:
            accuracy = self.last.get("accuracy", {}).get("worst")
            success = self.last.get("attack_success", {}).get("worst")
            turns = self.counts["turns"]
            self.progress(Progress(self.round, self.rounds, turns, accuracy, success))

    def _read_selections(self) -> None:
        """Write down who chose whom: read once a round, so that a GPU need not wait every turn."""
        if not self._unread:
            return
        indices = self.compute.indices([selected for *_, selected in self._unread])
        for (k, node, senders, _), index in zip(self._unread, indices, strict=True):
            chosen, liar = senders[index], node in self.byzantine
            self._selections.write(f"{k},{node},{'' if chosen is None else chosen},{int(liar)}\n")
            if chosen is not None and not liar:
                self.counts["byzantine"] += chosen in self.byzantine
                self.counts["nearest"] += self.ring.distance(chosen, node) == 1
        self._unread.clear()

    def _end_round(self) -> None:
        self._read_selections()
        due = self.round % self.every == 0 or self.round == self.rounds
        if due and self.evaluated < self.round:
            self._evaluate()

    def _evaluate(self) -> None:
        self.evaluated = self.round
        found = evaluate(
            self.compute, self.models.values(), self.test, self.test_samples, self.triggered
        )
        self.last = {
            "round": self.round,
            **found,
            "virtual_seconds": self.time,
            "seconds": round(self.seconds, 3),
        }
        self._metrics.write(json.dumps(self.last) + "\n")
        self._metrics.flush()

    def instant(self, engine: Snapshots) -> bool:
        stop = self.stop()
        if stop or time.monotonic() - self._saved >= self.checkpoint_seconds:
            self.save(engine)
        return not stop

    def finish(self) -> None:
        """The last round has no next one to end it."""
        self._end_round()

    def save(self, engine: Snapshots) -> None:
        self._read_selections()
        self._metrics.flush()
        self._selections.flush()
        mine = {
            "round": self.round,
            "evaluated": self.evaluated,
            "time": self.time,
            "counts": dict(self.counts),
            "last": self.last,
            "models": {str(node): model for node, model in self.models.items()},
            "seconds": self.seconds,
            "metrics": self._metrics.tell(),
            "selections": self._selections.tell(),
        }
        checkpoint.save(self.folder / CHECKPOINT, {"engine": engine.snapshot(), "recorder": mine})
        self._saved = time.monotonic()

    def restore(self, saved: dict[str, Any]) -> None:
        self.round, self.evaluated = saved["round"], saved["evaluated"]
        self.time, self.last = saved["time"], saved["last"]
        self.counts = Counter(saved["counts"])
        self.models = {int(node): model for node, model in saved["models"].items()}
        self._seconds = saved["seconds"]
        for name, length in ((METRICS, saved["metrics"]), (SELECTIONS, saved["selections"])):
            with (self.folder / name).open("r+b") as file:
                file.truncate(length)
