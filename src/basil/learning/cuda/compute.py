"""Scoring, selecting and training on a GPU, at the speed of the GPU.

A turn is some hundred small kernels.  What keeps the device busy:

* **One launch.**  Scores are not computed when they are asked for but together with what comes
  next.  When a node trains, the last model is scored, the selection is made, and the selected model
  is trained, all in one CUDA graph, beside the scores that only later turns need.  Which model was
  selected stays on the device.
* **Few bytes.**  What a graph needs to know (sample numbers, rows, places) is one small copy.
* **No waiting.**  Nothing here reads a value back before somebody asks for it.

Matrix products run in TF32 and cuDNN tries out its algorithms, unless `deterministic` asks for full
float32 and fixed algorithms.  The same text runs on a CPU, uncaptured: so it is tested anywhere.
"""

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from basil.learning.compute import Compute, Job, Tested
from basil.learning.cuda.board import Board, Group
from basil.learning.cuda.combination import Combination, gathered
from basil.learning.cuda.evaluator import Evaluator
from basil.learning.cuda.kernels import Kernels
from basil.learning.cuda.late import LateSelection, PlacedLosses
from basil.learning.cuda.launch import Task, bits_of
from basil.learning.cuda.parallel_scoring import ParallelScoring
from basil.learning.cuda.training_stream import STREAMS, TrainingStreams
from basil.learning.cuda.turn import Turn, turn_of
from basil.learning.metrics import Metric
from basil.learning.models import Loss
from basil.learning.optimizers import SGD, Optimizer
from basil.learning.pool import Batch, Pool
from basil.learning.promises import (
    Argument,
    Chosen,
    Losses,
    Pick,
    Promise,
    Selection,
    kept,
    tensor_of,
)

TOGETHER = 32  # trainings of a graph's nodes that are one computation
FORMS = 4  # at once: what takes long to compile is compiled for one number of models


class GraphCompute(Compute):
    """The primitives of `Compute` as few, large launches.

    `models`: about how many models are in use at a time.  `compiled`: by `torch.compile`, which
    takes half a minute and then a third off a turn.  `beside`: another ring in this process; if the
    network is the same, what was compiled for it serves here too, and if the data is, both have one
    board: what they ask for can be one computation.
    """

    late = True

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        pool: Pool,
        *,
        models: int = 128,
        deterministic: bool = False,
        compiled: bool = False,
        canonical: bool = False,
        optimizer: Optimizer = SGD,
        beside: "GraphCompute | None" = None,
    ) -> None:
        super().__init__(module, loss, pool, canonical=canonical, optimizer=optimizer)
        torch.backends.cuda.matmul.allow_tf32 = not deterministic
        torch.backends.cudnn.allow_tf32 = not deterministic
        torch.backends.cudnn.benchmark = not deterministic
        torch.backends.cudnn.deterministic = deterministic
        like = beside._kernels if beside is not None else None
        self._kernels: Kernels = Kernels(
            self.network, self.layout, loss, pool, compiled, like, self.canonical, self.most
        )
        # What is not joined may run on a stream of its own, beside others: it shares nothing.
        joins = beside is not None and beside.joins and self._captures
        suits = joins and beside is not None and beside.board.suits(self._kernels)
        self.board: Board = beside.board if beside and suits else Board(self._kernels, self.initial)
        self._ring = self.board.join(self, self._kernels.sizes, models)
        self._pending: list[PlacedLosses] = []  # of one model, not computed yet
        self._pending_model = self.initial
        self._copied = weakref.WeakKeyDictionary[Losses, PlacedLosses]()
        self._evaluators: dict[tuple[Pool, int], Evaluator] = {}
        self._streams = TrainingStreams(self._kernels, self.initial, 1 if self.large else STREAMS)
        self._parallel: dict[tuple[int, int], ParallelScoring] = {}

    @property
    def waited(self) -> int:
        return self.board.waited

    @property
    def joins(self) -> bool:
        return self._captures and self.board.joins

    def later(self) -> AbstractContextManager[None]:
        return self.board if self.joins else super().later()

    def waits(self) -> bool:
        return self.board.waits(self._ring)

    def catch_up(self) -> None:
        self.board.settle(self._ring)

    @property
    def _captures(self) -> bool:
        """A captured graph cannot be handed this turn's own seed (dropout), or a node's memory."""
        return not self.random and self.optimizer.plain

    # -- the primitives ------------------------------------------------------------------------

    def score(self, model: Tensor, batches: Sequence[Batch]) -> list[Losses]:
        # Who made a model asks for its score, too, before its receivers do.
        if model is not self._pending_model or len(self._pending) > 1:
            self._compute_scores()
        board = self.board
        sizes = [len(batch.indices) for batch in batches]
        board.widen(max(sizes))
        asked = [
            PlacedLosses(self, batch, size, board.place(board.losses))
            for batch, size in zip(batches, sizes, strict=True)
        ]
        self._pending_model = model
        self._pending = [*self._pending, *asked]
        return list(asked)

    def score_all(self, models: Tensor, batch: Batch) -> Losses:
        """Side by side: a node of a graph compares a dozen neighbours' models at once."""
        self.catch_up()
        shape = len(models), len(batch)
        scoring = self._parallel.get(shape)
        if scoring is None:
            batched = None if self.large else self.board.batched
            scoring = self._parallel[shape] = ParallelScoring(
                self._kernels, batched, *shape, self.board.memory
            )
        return Losses(scoring.score(models, batch))

    def _in_canonical_form(self, model: Tensor) -> Tensor:
        """Together with those of other rings: they differ in what they measure by."""
        mine, shared = self.canonical, self.board.kernels.canonical
        assert mine is not None
        assert shared is not None
        form: Tensor = self._combine(shared.form, [model, *mine.measures], turn_of(), FORMS)
        return form

    def combine(self, work: Callable[..., Any], args: Sequence[Argument]) -> Any:
        """In one launch: what takes forty operations would keep the host busy for a whole turn."""
        if not args:
            self.catch_up()
            return work()
        if any(promise.size != self._pending[0].size for promise in self._pending):
            self._compute_scores()
        count = self._alike(len(self._pending))
        scoring = turn_of(self._pending[0].size, count) if count else turn_of()
        return self._combine(work, args, scoring)

    def _combine(
        self, work: Callable[..., Any], args: Sequence[Argument], scoring: Turn, at_once: int = 0
    ) -> Any:
        """Beside it the model that is pending is scored, if this `scoring` does so."""
        board, size = self.board, self.layout.size
        board.begin()
        sources, task = gathered(args, board.models, size, self._placed)
        key = _identity(work), sources, scoring
        kind = board.combinations.get(key)
        if kind is None:  # the first of its kind shows what comes out
            self.flush()
            made = super().combine(work, args)
            board.combinations[key] = Combination(work, *key, made, size, at_once)
            return made
        if scoring.scores:
            task.put_before(self._scores(self._pending))
            self._pending = []
        promised = kind.promised(task, board.models)
        board.post(self._ring, kind, task)
        return promised

    def select(
        self, models: Sequence[Tensor], losses: Sequence[Losses], own: Tensor, pick: Pick
    ) -> Selection:
        placed = [self._placed(promise) for promise in losses]
        return LateSelection(self, [*models, own], placed, pick)

    def train(
        self,
        model: Tensor | Selection,
        batches: Sequence[Batch],
        rate: float,
        key: Callable[[], int],
        memory: dict[str, Any] | None = None,
    ) -> Tensor:
        if not self._captures:
            return super().train(tensor_of(model), batches, rate, key, memory)
        sizes = tuple(len(batch) for batch in batches)
        if isinstance(model, LateSelection) and not model.made:
            return self._select_and_train(model, batches, sizes, rate)
        if isinstance(model, Chosen) and model.copied is None:
            self.catch_up()  # its number may still have to be computed
        start = tensor_of(model)
        self.board.begin()
        task, trained = self._training(start, batches, rate)
        self.board.post(self._ring, turn_of(sizes=sizes), task)
        return self._in_form_again(model, trained)

    def _in_form_again(self, start: Tensor | Selection, trained: Tensor) -> Tensor:
        """What took steps was settled, which is enough where it began in canonical form: all models
        of a selection do, the mean of a graph's neighbours does not.
        """
        began = not isinstance(start, Tensor) or self.admitted(start)
        return self._formed(trained) if began else self.admit(trained)

    def _training(
        self, start: Tensor, batches: Sequence[Batch], rate: float
    ) -> tuple[Task, Tensor]:
        """A task, and the model that it will make."""
        rows = self.board.models
        row, out = rows.row(start), rows.free()
        samples = [batch.indices for batch in batches]
        numbers = [out, bits_of(rate), self._ring, row]
        trained = self._trained(out)
        return Task((samples, numbers), results=[(out, trained)]), trained

    def _select_and_train(
        self,
        selection: LateSelection,
        batches: Sequence[Batch],
        sizes: tuple[int, ...],
        rate: float,
    ) -> Tensor:
        if any(promise.size != sizes[0] for promise in self._pending):
            self._compute_scores()
        needed = {promise.place for promise in selection.losses}
        urgent = [promise for promise in self._pending if promise.place in needed]
        pending = urgent + [promise for promise in self._pending if promise.place not in needed]
        self._pending = []
        rows = self.board.models
        self.board.begin()
        scored, places = self._scored(pending)
        samples = [batch.indices for batch in batches] + scored
        numbers = [0, bits_of(rate), self._ring]
        if pending:
            numbers += [rows.row(self._pending_model), *places]
        numbers += selection.numbers([rows.row(model) for model in selection.models])
        numbers[0] = out = rows.free()
        models, losses, pick = selection.models, selection.losses, _identity(selection.pick)
        turn = turn_of(sizes[0], len(places), len(urgent), len(models), len(losses), pick, sizes)
        trained, holders = self._trained(out), [*pending, selection]
        task = Task((samples, numbers), results=[(out, trained)], holders=holders)
        self.board.post(self._ring, turn, task, selection.pick)
        for promise in pending:
            promise.made = True
        selection.made = True
        return self._in_form_again(selection, trained)

    def _trained(self, row: int) -> Tensor:
        """The model that will lie in this row."""
        model = torch.empty_like(self.initial)
        self.board.models.keep(model, row)
        return model

    def train_together(self, jobs: Sequence[Job]) -> list[Tensor]:
        """As one computation, or on several streams: one small training does not fill a GPU."""
        if len(jobs) == 1 or not self._captures:
            return super().train_together(jobs)
        self.catch_up()
        if self.joins and not self.large:
            models = self._train_as_one(jobs)
        elif self.device.type == "cuda":
            models = self._streams.train(jobs)
        else:
            return super().train_together(jobs)
        with self.later():
            formed = [self._in_form_again(j.model, m) for j, m in zip(jobs, models, strict=True)]
        self.catch_up()
        return formed

    def _train_as_one(self, jobs: Sequence[Job]) -> list[Tensor]:
        """In groups of which all models have a row, those with batches of one size together."""
        trained: list[Tensor] = []
        some = -(-len(jobs) // -(-len(jobs) // TOGETHER))  # none is left over
        for start in range(0, len(jobs), some):
            self.board.begin()
            alike: dict[Turn, list[Task]] = {}
            for job in jobs[start : start + some]:
                task, model = self._training(tensor_of(job.model), job.batches, job.rate)
                trained.append(model)
                turn = turn_of(sizes=tuple(len(batch) for batch in job.batches))
                alike.setdefault(turn, []).append(task)
            for turn, tasks in alike.items():
                self.board.do(Group(turn, None, tasks))
        return trained

    def flush(self) -> None:
        """Compute the scores that have been asked for: somebody looks at them now."""
        self._compute_scores()
        self.board.settle(self._ring)

    def _compute_scores(self) -> None:
        pending, self._pending = self._pending, []
        for size in sorted({promise.size for promise in pending}):
            alike = [promise for promise in pending if promise.size == size]
            self.board.begin()
            task = self._scores(alike)
            self.board.post(self._ring, turn_of(size, len(task.command[0])), task)

    def _scores(self, promises: list[PlacedLosses]) -> Task:
        """Of the model that is pending: a task that keeps these."""
        row = self.board.models.row(self._pending_model)
        samples, places = self._scored(promises)
        for promise in promises:
            promise.made = True
        return Task((samples, [row, *places]), reads=row, holders=promises)

    def _scored(self, promises: list[PlacedLosses]) -> tuple[list[NDArray[np.int64]], list[int]]:
        """Their samples and places: as many as others have, since only what is alike is joined.

        Those that are added go to the place that is nobody's.
        """
        samples = [promise.batch.indices for promise in promises]
        places = [promise.place for promise in promises]
        more = self._alike(len(promises)) - len(promises)
        return samples + samples[:1] * more, places + [0] * more

    def _alike(self, scores: int) -> int:
        """(All nodes may score x⁰, at once, and only once.)"""
        return scores if self._pending_model is self.initial else self.board.alike(scores)

    def make(self, selection: LateSelection) -> None:
        """Select without training."""
        if selection.made:
            self.catch_up()
        else:
            self.flush()
            self.board.begin()
            rows = [self.board.models.row(model) for model in selection.models]
            turn = turn_of(
                batch=selection.losses[0].size,
                models=len(selection.models),
                compared=len(selection.losses),
                pick=_identity(selection.pick),
            )
            task = Task(([], selection.numbers(rows)), holders=[selection])
            self.board.post(self._ring, turn, task, selection.pick)
            self.catch_up()
            selection.made = True

    def indices(self, selections: Sequence[Selection]) -> Promise[list[int]]:
        numbers = []  # on the device: those of this moment, since a place may be used again
        for selection in selections:
            if isinstance(selection, LateSelection):
                self.make(selection)
                numbers.append(self.board.picked.tensor[selection.place])
            elif isinstance(selection, Chosen):
                self.catch_up()  # it may still have to be computed
                numbers.append(selection.number)
        if not numbers:
            return kept([selection.index for selection in selections])
        read = self._read(torch.stack(numbers))
        known = [None if isinstance(s, LateSelection | Chosen) else s.index for s in selections]

        def keep() -> list[int]:
            found = iter(read().tolist())
            return [next(found) if index is None else index for index in known]

        return Promise(keep)

    def _read(self, tensor: Tensor) -> Callable[[], Tensor]:
        """A tensor's values of this moment, on their way to the host."""
        if self.device.type != "cuda":
            there = tensor.clone()
            return lambda: there
        here = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        here.copy_(tensor, non_blocking=True)
        event = torch.cuda.current_stream(self.device).record_event()

        def wait() -> Tensor:
            event.synchronize()
            return here

        return wait

    def test(
        self, models: Sequence[Tensor], pool: Pool, samples: int, metrics: Sequence[Metric] = ()
    ) -> Promise[Tested]:
        if metrics:  # they want the outputs of a whole test set, which no graph could hold
            return super().test(models, pool, samples, metrics)
        evaluator = self.board.evaluators.get((pool, samples))
        if evaluator is None or evaluator.room < len(models):
            if evaluator is not None and self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # it may still be at work
            batched = self.board.batched
            evaluator = Evaluator(self._kernels, batched, pool, samples, len(models), self.chunk)
            self.board.evaluators[pool, samples] = evaluator
        self._evaluators[pool, samples] = evaluator  # it is there as long as its rings are
        sums = evaluator.evaluate(models, self._read)

        def keep() -> Tested:
            means = (sums() / samples).tolist()
            return [(loss, right if self.classifies else float("nan")) for loss, right in means]

        return Promise(keep)

    def _placed(self, promise: Losses) -> PlacedLosses:
        """A promise of this device.  Others, of a checkpoint or of a Byzantine node that does not
        compare, are copied into a place, once.
        """
        if isinstance(promise, PlacedLosses):
            return promise
        placed = self._copied.get(promise)
        if placed is None:
            losses, board = promise.wait(), self.board
            board.widen(len(losses))
            batch, place = Batch(np.arange(len(losses))), board.place(board.losses)
            placed = self._copied[promise] = PlacedLosses(self, batch, len(losses), place)
            board.losses.tensor[place, : len(losses)].copy_(losses)
            placed.made = True
        return placed


def _identity(function: Callable[..., Any]) -> object:
    """What makes two functions the same: a partial is made anew for each use."""
    if isinstance(function, partial):
        return function.func, function.args, tuple(sorted(function.keywords.items()))
    return function
