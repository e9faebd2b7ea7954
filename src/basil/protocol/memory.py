"""StoredModels of Algorithm 1: the last S models that a node was sent."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

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


class Memory:
    """A queue of the last S inserted models, at most one of each sender.

    Where every predecessor sends one model a lap this is Algorithm 1's queue.  Where some are
    silent, the printed queue would keep two models of one sender, and b Byzantine nodes that are
    the only ones talking could fill it; here b senders never hold more than b places.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._entries: dict[int, Entry] = {}  # by sender, oldest insertion first

    @property
    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def insert(self, entry: Entry) -> None:
        entries = self._entries
        entries.pop(entry.sender, None)
        entries[entry.sender] = entry
        if len(entries) > self.size:
            del entries[next(iter(entries))]

    def replace(self, entry: Entry) -> None:
        """The same model with other losses: it keeps its place in the queue."""
        self._entries[entry.sender] = entry

    def nearest_first(self) -> list[Entry]:
        """The later the turn, the nearer the predecessor."""
        return sorted(self._entries.values(), key=_step, reverse=True)


_step = attrgetter("step")


def pack(entries: list[Entry]) -> list[dict[str, Any]]:
    """Entries as plain values, for a checkpoint."""
    return [
        {
            "sender": entry.sender,
            "step": entry.step,
            "model": entry.model,
            "losses": None if entry.losses is None else entry.losses.wait(),
            "scored_in": entry.scored_in,
        }
        for entry in entries
    ]


def unpack(packed: list[dict[str, Any]]) -> list[Entry]:
    return [
        Entry(**{**fields, "losses": None if losses is None else Losses(losses)})
        for fields in packed
        for losses in [fields["losses"]]
    ]
