"""What the rings of one process have in common on a device.

Rings with the same network and data have one board: rows for models, places for small results, and
the launches that work on them.  Each command says which rows and places are its own.

What rings ask for `later` waits until one of them wants to go on: then all that is alike is one
computation.  If each asks before the first goes on, that is the work of all of them.
"""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from basil.learning.cuda.kernels import Kernels
from basil.learning.cuda.launch import GraphMemory, Launch
from basil.learning.cuda.places import Models, Places
from basil.learning.cuda.turn import Turn, Turns
from basil.learning.promises import Pick

Command = tuple[list[NDArray[np.int64]], list[int]]
"""The numbers of samples, and then other numbers."""


SPARE = 128  # rows that nobody has asked for


class Board:
    """`kernels`: of the ring that begins it."""

    def __init__(self, kernels: Kernels, start: Tensor) -> None:
        self.kernels = kernels
        self.device = device = kernels.pool.device
        self.models = Models(SPARE, kernels.padded, device)
        self.width = 0  # of a place for losses: the largest batch so far
        self.losses = Places(lambda places: torch.zeros(places, self.width, device=device), 1024)
        self.picked = Places(partial(torch.zeros, dtype=torch.int64, device=device), 256)
        count = len(kernels.sizes)
        self.sizes = Places(lambda places: torch.zeros(places, count, device=device), 64)
        self.memory = GraphMemory()  # of all that happens one after the other
        self.posted = 0  # commands that waited for others, so far
        self._waits = False
        self._turns = Turns(kernels, kernels.working_model(start), self)
        self._launches: dict[object, Launch] = {}
        self._waiting: dict[Turn, tuple[Pick | None, list[Command]]] = {}
        self._asking: set[int] = set()  # rings whose commands wait
        self._holders: list[Sequence[object]] = []
        self._results: list[tuple[int, Tensor]] = []  # rows that are to be copied, and where to

    def join(self, ring: object, sizes: Tensor, models: int) -> int:
        """The number of a ring that is here until it is gone."""
        number = self.place(self.sizes)
        self.sizes.tensor[number].copy_(sizes)
        if self.models.join(models):
            self._forget_launches()
        weakref.finalize(ring, self._leave, number, models)
        return number

    def _leave(self, number: int, models: int) -> None:
        self.sizes.give_back(number)
        self.models.leave(models)

    def suits(self, kernels: Kernels) -> bool:
        """Whether a ring of these may join."""
        return self.kernels.pool is kernels.pool and self.kernels.alike(kernels)

    # -- work ----------------------------------------------------------------------------------

    @contextmanager
    def later(self) -> Iterator[None]:
        """What is posted in here waits for others' until `flush`."""
        self._waits = self.joins
        try:
            yield
        finally:
            self._waits = False

    @property
    def joins(self) -> bool:
        """Whether this network's turns can be one computation."""
        return self._turns.batched is not None

    def begin(self) -> None:
        """A new command is put together."""
        if not self._waiting:
            self.models.begin()

    def post(
        self,
        ring: int,
        turn: Turn,
        command: Command,
        pick: Pick | None = None,
        holders: Sequence[object] = (),
    ) -> None:
        """Work that may wait, if that is allowed now.

        `holders`: of the places that it writes to, which are nobody else's until it is done.
        """
        if not self._waits:
            self.do(turn, [command], pick)
            return
        self._holders.append(holders)
        self._waiting.setdefault(turn, (pick, []))[1].append(command)
        self._asking.add(ring)
        self.posted += 1

    def settle(self, ring: int) -> None:
        """Nothing of this ring waits any longer."""
        if ring in self._asking:
            self.flush()

    def result(self, row: int) -> Tensor:
        """The model that the last command puts into this row."""
        size = self.kernels.layout.size
        if not self._waits:
            return self.models.matrix[row, :size].clone()
        model = torch.empty(size, device=self.device)
        self._results.append((row, model))
        return model

    def flush(self) -> None:
        """Do what waits."""
        waiting, self._waiting = self._waiting, {}
        self._asking.clear()
        for turn, (pick, commands) in waiting.items():
            self.do(turn, commands, pick)
        self._holders.clear()
        results, self._results = self._results, []
        if results:
            rows = [self.models.matrix[row, : len(model)] for row, model in results]
            torch._foreach_copy_([model for _, model in results], rows)

    def do(self, turn: Turn, commands: list[Command], pick: Pick | None = None) -> None:
        """The same of several rings, now."""
        # One more than are there does no harm, if it is one of them: it has the same outcome.
        rings = 1 << (len(commands) - 1).bit_length()
        commands += commands[-1:] * (rings - len(commands))
        launch = self._launches.get((turn, rings))
        if launch is None:
            samples, numbers = commands[0]
            length = sum(map(len, samples)) + len(numbers)
            take = self._turns.take if rings == 1 else self._turns.take_together
            work = partial(take, turn, pick)
            launch = Launch(work, length, self.device, self.memory, rings)
            self._launches[turn, rings] = launch
        launch(commands)

    # -- places --------------------------------------------------------------------------------

    def place(self, places: Places) -> int:
        place = places.take()
        if place is None:
            self.flush()
            places.grow()
            self._forget_launches()
            place = places.take()
            assert place is not None
        return place

    def widen(self, width: int) -> None:
        """Batches may have this many samples."""
        if width > self.width:
            self.flush()
            more = width - self.losses.tensor.shape[1]
            self.width = width
            self.losses.tensor = torch.nn.functional.pad(self.losses.tensor, (0, more))
            self._forget_launches()

    def _forget_launches(self) -> None:
        """What was captured holds the address of a tensor that has grown: capture it again."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # none of them may still be running
        self._launches.clear()
        self.memory = GraphMemory()  # a pool goes with the last graph that was captured in it
