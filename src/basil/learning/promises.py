"""Answers that may still be on their way.

On a CPU a promise is kept when it is made.  On a GPU the host runs ahead of the device: it knows
what it has asked for long before the device has computed it, and must not wait before it has to.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

Pick = Callable[[Tensor, Tensor], Tensor]
"""From losses [candidate, sample] and their means [candidate] to the index of a candidate.

Written in tensor operations that never look at a value: it may become part of a CUDA graph.
"""


class Promise(Generic[T]):
    """Something that `keep` makes when it is first waited for."""

    def __init__(self, keep: Callable[[], T]) -> None:
        self._keep: Callable[[], T] | None = keep

    def wait(self) -> T:
        if self._keep is not None:
            self._value, self._keep = self._keep(), None
        return self._value


def kept(value: T) -> Promise[T]:
    """A promise of what is there already."""
    return Promise(lambda: value)


class Losses:
    """The losses of one model on one batch; [model, sample] where several were asked for."""

    __slots__ = ("__weakref__", "_tensor")

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def wait(self) -> Tensor:
        return self._tensor

    def look(self) -> Tensor:
        """The same without a copy, for a caller that uses it at once."""
        return self.wait()


class Rows(tuple[Tensor, ...]):
    """Several models as an argument that a CPU leaves where they lie; a GPU gets one tensor."""

    __slots__ = ()


Argument = Tensor | Losses | Sequence[Tensor] | Sequence[Losses]


def laid_out(args: Sequence[Argument]) -> list[Any]:
    """Arguments as tensors: losses are waited for, and several of a kind become the rows of one."""
    return [_laid_out(arg) for arg in args]


def _laid_out(arg: Argument) -> Tensor | Rows:
    if isinstance(arg, Tensor) or (isinstance(arg, Rows) and arg[0].device.type == "cpu"):
        return arg
    if isinstance(arg, Losses):
        return arg.wait()
    return torch.stack([part.look() if isinstance(part, Losses) else part for part in arg])


class Selection:
    """One of some models."""

    __slots__ = ("_index", "models")

    def __init__(self, models: Sequence[Tensor], index: int) -> None:
        self.models = models
        self._index = index

    @property
    def index(self) -> int:
        """Which one: who asks waits for it."""
        return self._index

    def model(self) -> Tensor:
        return self.models[self.index]

    def among(self, models: Sequence[Tensor]) -> "Selection":
        """The one in the same place of others."""
        return Selection(models, self.index)


class Chosen(Selection):
    """One of some models, by a number that may still be on its way.  `copied`: where it lies, too,
    if who has found the number has copied it.
    """

    __slots__ = ("copied", "number")

    def __init__(
        self, models: Sequence[Tensor], number: Tensor, copied: Tensor | None = None
    ) -> None:
        self.models = models
        self.number = number
        self.copied = copied

    @property
    def index(self) -> int:
        return int(self.number)

    def model(self) -> Tensor:
        """Without a look at the number, unless it is on a CPU, where nothing is gained by that."""
        if self.copied is not None:
            return self.copied
        if self.number.device.type == "cpu":
            return self.models[self.index]
        return torch.stack(list(self.models)).index_select(0, self.number.view(1)).view(-1)

    def among(self, models: Sequence[Tensor]) -> Selection:
        return Chosen(models, self.number)


def sent(values: Tensor, device: torch.device) -> Tensor:
    """What the host knows, on the device, which nobody waits for."""
    if device.type == "cpu":
        return values
    return values.pin_memory().to(device, non_blocking=True)


def tensor_of(model: Tensor | Selection) -> Tensor:
    return model.model() if isinstance(model, Selection) else model


def means_of(losses: Tensor) -> Tensor:
    """The mean of each row; +inf for garbage, whose mean is not finite."""
    means = losses.mean(1, dtype=torch.float64)
    return means.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=torch.inf)


def decide(losses: Tensor, pick: Pick, candidates: int) -> Tensor:
    """The index that the rule picks; one past the last candidate if its pick is garbage.

    That is one's own model, whose losses may be the last row.
    """
    means = means_of(losses)
    index = pick(losses, means)
    index = index.clamp(max=len(losses) - 1)
    return torch.where(means.index_select(0, index.view(1))[0].isinf(), candidates, index)
