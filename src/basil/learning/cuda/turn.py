"""A turn on a GPU: score, select, train, as one graph."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from basil.learning.cuda.batched import Batched
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


turn_of = lru_cache(maxsize=4096)(Turn)  # the same few again and again: one object each


class Where(Protocol):
    """Where things lie that a command names."""

    models: Models
    losses: Places
    picked: Places
    sizes: Places


class Turns:
    """What a graph is captured of: functions of commands, on what lies in their places."""

    def __init__(self, kernels: Kernels, working: WorkingModel, where: Where) -> None:
        self.kernels = kernels
        self.working = working
        self.where = where
        self._side = SideStream(kernels.pool.device)
        many = Batched(kernels)
        self.batched = many if many.possible else None

    def take(self, turn: Turn, pick: Pick | None, commands: Tensor) -> None:
        """One ring's: see `Turn`."""
        where, command = self.where, commands[0]
        fields = Fields(command)
        steps = [fields.next(size) for size in turn.sizes]
        scored = fields.next(turn.scores * turn.batch)
        out, bits, ring = (fields.next(1 if steps else 0) for _ in range(3))
        first = turn.urgent if steps else turn.scores
        aside = first < turn.scores  # later turns ask for the rest: while this one goes on
        if turn.scores:
            vector = where.models.matrix.index_select(0, fields.next(1))
            places, split = fields.next(turn.scores), first * turn.batch
            if first:
                losses = self.kernels.losses(vector, scored[:split])
                self._keep(turn, losses, places[:first])
            if aside:
                with self._side.begin():
                    losses = self.kernels.losses(vector, scored[split:])
                    self._keep(turn, losses, places[first:])
        row = None
        if turn.compared:
            assert pick is not None
            losses, rows = self._compared(turn, fields), fields.next(turn.models)
            index = decide(losses[0], pick, turn.models - 1).view(1)
            where.picked.tensor.index_copy_(0, fields.next(1), index)
            row = rows.index_select(0, index)
        if steps:
            row = fields.next(1) if row is None else row
            torch.index_select(where.models.matrix, 0, row, out=self.working.vector)
            rate, sizes = _rates(bits)[0], where.sizes.tensor.index_select(0, ring)[0]
            for indices in steps:
                self.kernels.step(self.working, indices, rate, sizes)
            self.kernels.settle(self.working, sizes)
            where.models.matrix.index_copy_(0, out, self.working.vector.detach())
        if aside:
            self._side.wait()

    def take_together(self, turn: Turn, pick: Pick | None, commands: Tensor) -> None:
        """Those of several rings, a row of commands each."""
        where, many = self.where, self.batched
        assert many is not None
        fields = Fields(commands)
        steps = [fields.next(size) for size in turn.sizes]
        scored = fields.next(turn.scores * turn.batch)
        out, bits, ring = (fields.next(1 if steps else 0).flatten() for _ in range(3))
        if turn.scores:
            vectors = where.models.matrix.index_select(0, fields.next(1).flatten())
            self._keep(turn, many.losses(vectors, scored), fields.next(turn.scores).flatten())
        row = None
        if turn.compared:
            assert pick is not None
            losses, rows = self._compared(turn, fields), fields.next(turn.models)
            index = many.decide(losses, pick, turn.models - 1)
            where.picked.tensor.index_copy_(0, fields.next(1).flatten(), index)
            row = rows.gather(1, index[:, None]).flatten()
        if steps:
            row = fields.next(1).flatten() if row is None else row
            vectors = where.models.matrix.index_select(0, row)
            rates, sizes = _rates(bits), where.sizes.tensor.index_select(0, ring)
            for indices in steps:
                vectors = many.step(vectors, indices, rates, sizes)
            where.models.matrix.index_copy_(0, out, many.settled(vectors, sizes))

    def _keep(self, turn: Turn, losses: Tensor, places: Tensor) -> None:
        there = self.where.losses.tensor[:, : turn.batch]
        there.index_copy_(0, places, losses.view(len(places), -1))

    def _compared(self, turn: Turn, fields: Fields) -> Tensor:
        """The losses [ring, candidate, sample] that the next places hold."""
        places = fields.next(turn.compared)
        losses = self.where.losses.tensor[:, : turn.batch].index_select(0, places.flatten())
        return losses.view(-1, turn.compared, turn.batch)


def _rates(bits: Tensor) -> Tensor:
    return bits.contiguous().view(torch.float64).float()
