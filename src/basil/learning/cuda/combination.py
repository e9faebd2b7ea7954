"""Any function of tensors as one launch, for the arguments of several rings at once."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from basil.learning.cuda.kernels import Kernels
from basil.learning.cuda.launch import PLAIN_RUNS, Fields, GraphMemory, Launch, Task
from basil.learning.cuda.places import Models
from basil.learning.cuda.turn import Turn, Where
from basil.learning.promises import Argument, Losses

Work = Callable[..., Any]
READY, SMALL = 64, 2048  # tensors for outputs of up to so many elements
ELEMENTS = 2**26  # of all rings' arguments at a time, at most


class Source(NamedTuple):
    """Of an argument: `many` of a kind, which come as the rows of one tensor; 0: one, as it is."""

    lies: Literal["in rows", "in places", "elsewhere"]  # a command names it, or it is copied
    many: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def parts(self) -> int:
        return self.many or 1

    @property
    def whole(self) -> tuple[int, ...]:
        return (self.many, *self.shape) if self.many else self.shape


class Placed(Protocol):
    """Losses in a place on the device."""

    place: int
    size: int


def gathered(
    args: Sequence[Argument], models: Models, size: int, placed: Callable[[Losses], Placed]
) -> tuple[tuple[Source, ...], Task]:
    """Where the arguments lie, and a task that names or holds them.  `size`: of a model."""
    sources, numbers = list[Source](), list[int]()
    given, holders = list[Tensor](), list[Placed]()
    for arg in args:
        parts: Sequence[Any] = [arg] if isinstance(arg, Tensor | Losses) else arg
        one, many = parts[0], 0 if parts is not arg else len(parts)
        if isinstance(one, Losses):
            there = [placed(part) for part in parts]
            numbers += [losses.place for losses in there]
            holders += there
            sources.append(Source("in places", many, (there[0].size,), torch.float32))
        elif many and one.shape == (size,) and one.dtype == torch.float32:
            numbers += [models.row(model) for model in parts]
            sources.append(Source("in rows", many, one.shape, one.dtype))
        else:
            given += parts
            sources.append(Source("elsewhere", many, one.shape, one.dtype))
    return tuple(sources), Task(([], numbers), given=given, holders=holders)


class Output:
    """One of those that come out, as the first of its kind has shown."""

    def __init__(self, made: Tensor, size: int) -> None:
        self._like = made.new_empty(())
        self.shape = made.shape
        self.is_model = made.shape == (size,) and made.dtype == torch.float32
        self._ready: list[Tensor] = []

    def empty(self) -> Tensor:
        """Small ones are made by the dozen."""
        if self.shape.numel() > SMALL:
            return self._like.new_empty(self.shape)
        if not self._ready:
            self._ready += self._like.new_empty((READY, *self.shape)).unbind(0)
        return self._ready.pop()


class Combination:
    """A function of arguments from these sources, once a model is scored: all that a captured graph
    cannot vary.  `at_once`: always so many in a launch, also of one ring, since none needs what
    another makes.  0: one of each ring.
    """

    def __init__(
        self,
        work: Work,
        what: object,  # makes two functions the same
        sources: tuple[Source, ...],
        scoring: Turn,
        made: Any,
        size: int,
        at_once: int = 0,
    ) -> None:
        self.work, self.what, self.sources, self.scoring = work, what, sources, scoring
        self.at_once = at_once
        self.outputs = [Output(tensor, size) for tensor in _row(made)]
        self._single = isinstance(made, Tensor)

    def promised(self, task: Task, models: Models) -> Any:
        """Tensors that this task will fill."""
        made, small, results = [], [], []
        for output in self.outputs:
            tensor = output.empty()
            made.append(tensor)
            if output.is_model:
                row = models.free()
                models.keep(tensor, row)
                results.append((row, tensor))
            else:
                small.append(tensor)
        task.made, task.results = small, results
        samples, numbers = task.command
        task.command = samples, [*numbers, *(row for row, _ in results)]
        return made[0] if self._single else tuple(made)


def _row(made: Any) -> tuple[Tensor, ...]:
    return (made,) if isinstance(made, Tensor) else tuple(made)


class Combined:
    """One kind of them, of so many rings."""

    def __init__(
        self,
        kind: Combination,
        rings: int,
        kernels: Kernels,
        where: Where,
        memory: GraphMemory,
        take: Callable[[Turn, None, Tensor], None],
    ) -> None:
        self._kind, self._rings, self._take = kind, rings, take
        self._kernels, self._where = kernels, where
        device = kernels.pool.device
        copied = [arg for arg in kind.sources if arg.lies == "elsewhere"]
        named = [arg for arg in kind.sources if arg.lies != "elsewhere"]
        self._inputs = [
            torch.zeros(rings, *arg.whole, dtype=arg.dtype, device=device) for arg in copied
        ]
        pairs = list(zip(copied, self._inputs, strict=True))
        self._slots = [  # where what the rings give is copied to, one ring after the other
            slot
            for ring in range(rings)
            for arg, there in pairs
            for slot in (there[ring].unbind(0) if arg.many else [there[ring]])
        ]
        most = max(1, ELEMENTS // sum(math.prod(arg.whole) for arg in kind.sources))
        self._at_a_time = min(rings, 1 << (most.bit_length() - 1))
        self._function: Work = partial(together if self._at_a_time > 1 else one_by_one, kind.work)
        self._made: list[Tensor] = []  # [ring, …] for each output that is no model
        self._runs = 0
        length = sum(arg.parts for arg in named) + sum(out.is_model for out in kind.outputs)
        scoring = kind.scoring
        self._scored = scoring.scores and scoring.scores * (scoring.batch + 1) + 1
        self._launch = Launch(self._combine, self._scored + length, device, memory, rings)

    def __call__(self, tasks: Sequence[Task]) -> None:
        copy_all(self._slots, [tensor for task in tasks for tensor in task.given])
        self._launch([task.command for task in tasks])
        made = [out.unbind(0) for out in self._made]
        copy_all(
            [tensor for task in tasks for tensor in task.made],
            [out[ring] for ring in range(len(tasks)) for out in made],
        )

    def _combine(self, commands: Tensor) -> None:
        self._runs += 1
        if self._runs == PLAIN_RUNS:  # the next is captured: by then it must have run
            kind, together = self._kind, self._at_a_time > 1
            any_number = together and not kind.at_once
            of = kind.work.func if isinstance(kind.work, partial) else kind.work
            self._function = self._kernels.fused(
                self._function, (kind.what, kind.sources, together), of, any_number
            )
        if self._scored:
            self._take(self._kind.scoring, None, commands[:, : self._scored])
            commands = commands[:, self._scored :]
        many = self._at_a_time
        parts = [self._part(commands, start) for start in range(0, len(commands), many)]
        self._made = [torch.cat(some) for some in zip(*parts, strict=True)]

    def _part(self, commands: Tensor, start: int) -> list[Tensor]:
        """Of some of the rings: what is no model."""
        commands = commands[start : start + self._at_a_time]
        fields, inputs = Fields(commands), iter(self._inputs)
        args = []
        for arg in self._kind.sources:
            if arg.lies == "elsewhere":
                args.append(next(inputs)[start : start + len(commands)])
            else:
                rows = self._lines(arg).index_select(0, fields.next(arg.parts).flatten())
                args.append(rows.view(len(commands), *arg.whole))
        others = []
        for out, made in zip(self._kind.outputs, self._outcome(args), strict=True):
            if out.is_model:
                there = self._where.models.matrix[:, : made.shape[1]]
                there.index_copy_(0, fields.next(1).flatten(), made)
            else:
                others.append(made)
        return others

    def _lines(self, arg: Source) -> Tensor:
        where = self._where
        table = where.models.matrix if arg.lies == "in rows" else where.losses.tensor
        return table[:, : arg.shape[0]]

    def _outcome(self, args: Sequence[Tensor]) -> tuple[Tensor, ...]:
        try:
            return _row(self._function(*args))
        except (RuntimeError, ValueError):
            if self._runs > 1 or self._at_a_time == 1:
                raise
            # It draws at random, or writes into a tensor of its own: no function of many rows.
            self._function = partial(one_by_one, self._kind.work)
            return _row(self._function(*args))


def together(work: Work, *args: Tensor) -> Any:
    """The work of several rings, whose arguments are the rows of these."""
    return torch.vmap(work)(*args)


def one_by_one(work: Work, *args: Tensor) -> tuple[Tensor, ...]:
    made = [_row(work(*some)) for some in zip(*args, strict=True)]
    return tuple(torch.stack(some) for some in zip(*made, strict=True))


def copy_all(to: Sequence[Tensor], what: Sequence[Tensor]) -> None:
    """Those of one type at once."""
    kinds: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for one, other in zip(to, what, strict=True):
        tos, whats = kinds.setdefault(one.dtype, ([], []))
        tos.append(one)
        whats.append(other)
    for tos, whats in kinds.values():
        torch._foreach_copy_(tos, whats)
