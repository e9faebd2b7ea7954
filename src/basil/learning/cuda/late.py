"""Promises of a GPU: numbers that lie in a place on the device, or will."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from basil.learning.cuda.board import Board
from basil.learning.pool import Batch
from basil.learning.promises import Chosen, Losses, Pick, Promise, Selection


class Computer(Protocol):
    """Who keeps these promises."""

    board: Board

    def flush(self) -> None: ...
    def catch_up(self) -> None: ...
    def make(self, selection: "LateSelection") -> None: ...
    def indices(self, selections: Sequence[Selection]) -> Promise[list[int]]: ...


class PlacedLosses(Losses):
    """Losses in a place on the device, computed when something else is, or when asked for."""

    __slots__ = ("_compute", "batch", "made", "place", "size")

    def __init__(self, compute: Computer, batch: Batch, size: int, place: int) -> None:
        self._compute = compute
        self.batch = batch
        self.size = size
        self.place = place
        self.made = False

    def wait(self) -> Tensor:
        return self.look().clone()

    def look(self) -> Tensor:
        if self.made:
            self._compute.catch_up()
        else:
            self._compute.flush()
        return self._compute.board.losses.tensor[self.place, : self.size]

    def __del__(self) -> None:
        self._compute.board.losses.give_back(self.place)


class LateSelection(Selection):
    """A selection that is made together with the training, or when asked for."""

    __slots__ = ("_compute", "losses", "made", "pick", "place")

    def __init__(
        self,
        compute: Computer,
        models: Sequence[Tensor],
        losses: list[PlacedLosses],
        pick: Pick,
    ) -> None:
        self._compute = compute
        self.models = models
        self.losses = losses
        self.pick = pick
        self.place = compute.board.place(compute.board.picked)
        self.made = False

    @property
    def index(self) -> int:
        return self._compute.indices([self]).wait()[0]

    def model(self) -> Tensor:
        """Without a look at the index."""
        self._compute.make(self)
        index = self._compute.board.picked.tensor[self.place].view(1)
        return torch.stack(list(self.models)).index_select(0, index).view(-1)

    def among(self, models: Sequence[Tensor]) -> Selection:
        self._compute.make(self)
        return Chosen(models, self._compute.board.picked.tensor[self.place].clone())

    def numbers(self, rows: list[int]) -> list[int]:
        """Its part of a command: places of the losses, rows of the models, place of the index."""
        return [*(promise.place for promise in self.losses), *rows, self.place]

    def __del__(self) -> None:
        self._compute.board.picked.give_back(self.place)
