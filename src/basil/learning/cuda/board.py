"""What the rings of one process have in common on a device.

Rings with the same network and data have one board: rows for models, places for small results, and
the launches that work on them.  Each command says which rows and places are its own.

What rings ask for `later` waits until one of them wants to look at it: then all that is alike is
one computation.  If each asks before the first looks, that is the work of all of them.
"""

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from basil.learning.cuda.batched import Batched
from basil.learning.cuda.combination import Combination, Combined, copy_all
from basil.learning.cuda.evaluator import Evaluator
from basil.learning.cuda.kernels import Kernels
from basil.learning.cuda.launch import GraphMemory, Launch, Task
from basil.learning.cuda.places import Models, Places
from basil.learning.cuda.turn import Turn, Turns
from basil.learning.pool import Pool
from basil.learning.promises import Pick

Kind = Turn | Combination
SPARE = 128  # rows that nobody has asked for


@dataclass
class Group:
    """Tasks that are alike: one launch."""

    kind: Kind
    pick: Pick | None  # of a turn that selects
    tasks: list[Task]


class Board:
    """`kernels`: of the ring that begins it."""

    def __init__(self, kernels: Kernels, start: Tensor) -> None:
        self.kernels = kernels
        self.device = device = kernels.pool.device
        self.models = Models(SPARE, kernels.padded, device, self.flush)
        self.width = 0  # of a place for losses: the largest batch so far
        self.losses = Places(lambda places: torch.zeros(places, self.width, device=device), 1024)
        self.picked = Places(partial(torch.zeros, dtype=torch.int64, device=device), 256)
        count = len(kernels.sizes)
        self.sizes = Places(lambda places: torch.zeros(places, count, device=device), 64)
        self.memory = GraphMemory()  # of all that happens one after the other
        self.waited = 0  # how often rings have waited for others, so far
        self.combinations: dict[object, Combination] = {}
        self.evaluators = weakref.WeakValueDictionary[tuple[Pool, int], Evaluator]()
        self._waits = self._begun = False
        self._least = 1  # tasks in a launch
        self._scores = 0  # the most batches that a model was scored on
        self._turns = Turns(kernels, kernels.working_model(start), self)
        self._launches: dict[object, Callable[[Sequence[Task]], None]] = {}
        # What waits: of each ring in its order; and scores of models that are there, in any.
        self._waiting: dict[int, deque[tuple[Kind, Pick | None, Task]]] = {}
        self._scoring: dict[Kind, list[Task]] = {}
        self._filled: set[int] = set()  # rows, by what waits

    def join(self, ring: object, sizes: Tensor, models: int) -> int:
        """The number of a ring that is here until it is gone."""
        number = self.place(self.sizes)
        # Where others are, what one ring asks for is done in their way: or all of it would be
        # compiled and captured twice.
        self._least = 2 if self._begun and self.joins else 1
        self._begun = True
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

    def __enter__(self) -> None:
        """What is posted from here on waits for others' until `flush`."""
        self._waits = self.joins

    def __exit__(self, *_: object) -> None:
        self._waits = False

    @property
    def joins(self) -> bool:
        """Whether this network's turns can be one computation."""
        return self.batched is not None

    @property
    def batched(self) -> Batched | None:
        return self._turns.batched

    def alike(self, scores: int) -> int:
        """How many batches to score a model on, for these to be one computation with others'.

        A model has as many receivers as are benign.  What a node scores for itself, on one batch,
        is alike anyway.
        """
        if not self._waits or scores <= 1:
            return scores
        self._scores = max(self._scores, scores)
        return self._scores

    def begin(self) -> None:
        """A new command is put together."""
        self.models.begin(waits=bool(self._waiting))

    def post(self, ring: int, kind: Kind, task: Task, pick: Pick | None = None) -> None:
        """Work that may wait, if that is allowed now.

        It is done after all that the ring has asked for before: it may need that.  Scores need
        their model only.
        """
        if not self._waits:
            self.settle(ring)
            self.do(Group(kind, pick, [task]))
            return
        mine = self._waiting.setdefault(ring, deque())
        if task.reads is not None and task.reads not in self._filled:
            self._scoring.setdefault(kind, []).append(task)
        else:
            mine.append((kind, pick, task))
            self._filled.update(row for row, _ in task.results)

    def waits(self, ring: int) -> bool:
        """Whether something of this ring waits; if so, that counts."""
        waits = ring in self._waiting
        self.waited += waits
        return waits

    def settle(self, ring: int) -> None:
        """Nothing of this ring waits any longer."""
        if ring in self._waiting:
            self.flush()

    def flush(self) -> None:
        """Do what waits.  Who has the most to do goes first, or what others do alike with it later
        would be done without it.
        """
        scoring, self._scoring = self._scoring, {}
        waiting, self._waiting = self._waiting, {}
        self._filled.clear()
        for kind, tasks in scoring.items():
            self.do(Group(kind, None, tasks))
        while left := [mine for mine in waiting.values() if mine]:
            kind, pick, _ = max(left, key=len)[0]
            ready = [mine for mine in left if mine[0][0] is kind]
            tasks = [mine.popleft()[-1] for mine in ready]
            at_once = _at_once(kind)
            for mine in ready if at_once else ():
                while mine and mine[0][0] is kind:
                    tasks.append(mine.popleft()[-1])
            for start in range(0, len(tasks), at_once or len(tasks)):
                self.do(Group(kind, pick, tasks[start:][: at_once or None]))

    def do(self, group: Group) -> None:
        """The same of several rings, now."""
        # One more than are there does no harm, if it is one of them: it has the same outcome.
        rings = max(self._least, _room(len(group.tasks)))
        if rings > 1:
            rings = _at_once(group.kind) or rings
        tasks = group.tasks + group.tasks[-1:] * (rings - len(group.tasks))
        launch = self._launches.get((group.kind, rings))
        if launch is None:
            launch = self._launches[group.kind, rings] = self._launch(group, rings)
        launch(tasks)
        results = [result for task in group.tasks for result in task.results]
        if results:
            lines = self.models.lines(self.kernels.layout.size)
            copy_all([model for _, model in results], [lines[row] for row, _ in results])

    def _launch(self, group: Group, rings: int) -> Callable[[Sequence[Task]], None]:
        kind, memory = group.kind, self.memory
        take = self._turns.take if rings == 1 else self._turns.take_together
        if isinstance(kind, Combination):
            return Combined(kind, rings, self.kernels, self, memory, take)
        samples, numbers = group.tasks[0].command
        length = sum(map(len, samples)) + len(numbers)
        work = partial(take, kind, group.pick)
        launch = Launch(work, length, self.device, memory, rings)
        return lambda tasks: launch([task.command for task in tasks])

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


def _room(tasks: int) -> int:
    """1, 2, 3, 4, 6, 8, 12, …: few kinds of launch, and none with a third of it for nothing."""
    whole = 1 << (tasks - 1).bit_length()
    return whole * 3 // 4 if 4 * tasks <= 3 * whole else whole


def _at_once(kind: Kind) -> int:
    return kind.at_once if isinstance(kind, Combination) else 0
