"""What all nodes have asked for at one instant, computed together.

The S receivers of a model ask for its loss at once: it is loaded once and evaluated on their S
batches.  Trainings that begin at the same instant are handed over together, too.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from basil.engine.durations import Durations
from basil.engine.process import Process
from basil.learning.compute import Compute
from basil.learning.pool import Batch
from basil.learning.promises import Losses
from basil.protocol.requests import Arrival, Combine, Fetch, Score, ScoreAll, Train

ToScore = tuple[Process, Batch | None, Arrival | None]
"""Who asks, on what (None: it only takes the time); the arrival that the losses of the model are
handed over with, if any."""
After = Callable[[float, int, Callable[[], None]], None]
"""Let work end: after how many seconds, of which node, what happens then."""


class Jobs:
    """Collects the work of an instant, and does it on the virtual clock."""

    def __init__(
        self,
        compute: Compute,
        timing: Durations,
        after: After,
        resume: Callable[[Process, Any], None],
    ) -> None:
        self._compute, self._timing = compute, timing
        self._after, self._resume = after, resume
        self._trains: list[tuple[Process, Train]] = []
        # By the model's identity: the model, and who asks.
        self._scores: dict[int, tuple[Tensor, list[ToScore]]] = {}
        self.awaited = False  # will somebody look at what may still have to be computed?

    def __bool__(self) -> bool:
        return bool(self._scores or self._trains)

    def train(self, process: Process, request: Train) -> None:
        self._trains.append((process, request))

    def score(self, model: Tensor, asked: list[ToScore]) -> None:
        for process, batch, _ in asked:
            process.done.evaluations += batch is not None
        self._scores.setdefault(id(model), (model, []))[1].extend(asked)

    def do(self) -> None:
        trains, self._trains = self._trains, []
        scores, self._scores = self._scores, {}
        models = self._compute.train_together([job for _, job in trains]) if trains else []
        for (process, job), model in zip(trains, models, strict=True):
            process.done.steps += len(job.batches)
            self.end(process, job, model)
        for model, group in scores.values():
            batches = [batch for _, batch, _ in group if batch is not None]
            losses = self._compute.score(model, batches) if batches else []
            scored = partial(self._scored, group, losses)
            self._after(self._timing.forward, group[0][0].node, scored)

    def _scored(self, group: list[ToScore], losses: list[Losses]) -> None:
        scored = iter(losses)
        for process, batch, arrival in group:
            answer: Any = None if batch is None else next(scored)
            if arrival is not None:
                a = arrival  # all receivers of a model have the same, each with its own losses
                answer = Arrival(a.sender, a.round, a.body, a.time, answer)
            self._resume(process, answer)

    def end(
        self,
        process: Process,
        job: Score | ScoreAll | Train | Combine | Fetch,
        answer: Any,
        unseen: bool = False,
    ) -> None:
        """Hand over the answer once the work has taken its time."""
        looks = isinstance(job, Train) or (isinstance(job, Combine) and not job.unseen)
        self.awaited |= looks and not unseen
        seconds = self._timing.compute(job)
        self._after(seconds, process.node, lambda: self._resume(process, answer))
