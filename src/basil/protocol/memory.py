"""StoredModels of Algorithm 1: the last S models that a node was sent."""

from dataclasses import dataclass, field
from operator import attrgetter

from torch import Tensor

from basil.learning.promises import Losses

INITIAL = -1  # the "sender" of x⁰


@dataclass(slots=True, eq=False)
class Entry:
    """One stored model: who sent it, in which turn, and its losses on the batch of a round.

    Never changed: checkpoints hold on to it.
    """

    sender: int
    step: int
    model: Tensor
    losses: Losses | None = None
    scored_in: int = 0  # the round whose batch the losses belong to


@dataclass(slots=True, eq=False)
class Memory:
    """A queue of the last S inserted models, at most one of each sender.

    Where every predecessor sends one model a lap this is Algorithm 1's queue.  Where some are
    silent, the printed queue would keep two models of one sender, and b Byzantine nodes that are
    the only ones talking could fill it; here b senders never hold more than b places.
    """

    size: int
    by_sender: dict[int, Entry] = field(default_factory=dict)  # oldest insertion first

    def __copy__(self) -> "Memory":
        return Memory(self.size, self.by_sender.copy())

    @property
    def entries(self) -> list[Entry]:
        return list(self.by_sender.values())

    def insert(self, entry: Entry) -> None:
        entries = self.by_sender
        entries.pop(entry.sender, None)
        entries[entry.sender] = entry
        if len(entries) > self.size:
            del entries[next(iter(entries))]

    def replace(self, entry: Entry) -> None:
        """The same model with other losses: it keeps its place in the queue."""
        self.by_sender[entry.sender] = entry

    def nearest_first(self) -> list[Entry]:
        """The later the turn, the nearer the predecessor."""
        return sorted(self.by_sender.values(), key=_step, reverse=True)


_step = attrgetter("step")
