"""A turn on a GPU: score, select, train, as one graph."""

from dataclasses import dataclass

import torch
from torch import Tensor

from basil.learning.cuda.kernels import Kernels, WorkingModel
from basil.learning.cuda.launch import Fields
from basil.learning.cuda.places import Models, Places
from basil.learning.cuda.side_stream import SideStream
from basil.learning.promises import Pick, decide


@dataclass(frozen=True)
class Turn:
    """What a piece of work consists of; all that a captured graph cannot vary.

    Score a model on `scores` batches of `batch` samples, of which the selection waits for the first
    `urgent`; select one of `models` (the last is one's own) by `compared` losses on one such batch;
    train on batches of these `sizes`.
    """

    batch: int = 0
    scores: int = 0
    urgent: int = 0
    models: int = 0
    compared: int = 0
    pick: object = None
    sizes: tuple[int, ...] = ()


class Turns:
    """What a graph is captured of: functions of a command, on what lies in its place."""

    def __init__(
        self,
        kernels: Kernels,
        working: WorkingModel,
        models: Models,
        losses: Places,
        picked: Places,
    ) -> None:
        self.kernels = kernels
        self.working = working
        self.models = models
        self.losses = losses
        self.picked = picked
        self._side = SideStream(kernels.pool.device)

    def take(self, turn: Turn, pick: Pick | None, command: Tensor) -> None:
        """Everything in one: see `Turn`."""
        fields = Fields(command)
        steps = [fields.next(size) for size in turn.sizes]
        scored = fields.next(turn.scores * turn.batch)
        out, bits = (fields.next(1), fields.next(1)) if steps else (command[:0], command[:0])
        first = turn.urgent if steps else turn.scores
        aside = first < turn.scores  # later turns ask for the rest: while this one goes on
        if turn.scores:
            vector = self.models.matrix.index_select(0, fields.next(1))
            places, split = fields.next(turn.scores), first * turn.batch
            if first:
                self._score(vector, scored[:split], places[:first])
            if aside:
                with self._side.begin():
                    self._score(vector, scored[split:], places[first:])
        row = self._pick(turn, pick, fields) if turn.compared else None
        if steps:
            row = fields.next(1) if row is None else row
            torch.index_select(self.models.matrix, 0, row, out=self.working.vector)
            for indices in steps:
                self.kernels.step(self.working, indices, bits.view(torch.float64)[0].float())
            self.kernels.settle(self.working)
            self.models.matrix.index_copy_(0, out, self.working.vector.detach())
        if aside:
            self._side.wait()

    def _score(self, vector: Tensor, samples: Tensor, places: Tensor) -> None:
        losses = self.kernels.losses(vector, samples).view(len(places), -1)
        self.losses.tensor[:, : losses.shape[1]].index_copy_(0, places, losses)

    def _pick(self, turn: Turn, pick: Pick | None, fields: Fields) -> Tensor:
        """The row of the selected model."""
        assert pick is not None
        places, rows = fields.next(turn.compared), fields.next(turn.models)
        losses = self.losses.tensor[:, : turn.batch].index_select(0, places)
        index = decide(losses, pick, turn.models - 1).view(1)
        self.picked.tensor.index_copy_(0, fields.next(1), index)
        return rows.index_select(0, index)
