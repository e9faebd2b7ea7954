"""StoredModels of Algorithm 1: the last S models that a node was sent."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from basil.learning.compute import Losses

INITIAL = -1  # the "sender" of x⁰


@dataclass(slots=True, eq=False)
class Entry:
    """One stored model: who sent it, in which turn, and its losses on the batch of a round."""

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
        self.entries: list[Entry] = []

    def insert(self, entry: Entry) -> None:
        self.entries = [e for e in self.entries if e.sender != entry.sender]
        self.entries.append(entry)
        del self.entries[: -self.size]

    def nearest_first(self) -> list[Entry]:
        """The later the turn, the nearer the predecessor."""
        return sorted(self.entries, key=lambda entry: -entry.step)

    def state(self) -> list[dict[str, Any]]:
        return [
            {
                "sender": entry.sender,
                "step": entry.step,
                "model": entry.model,
                "losses": None if entry.losses is None else entry.losses.wait(),
                "scored_in": entry.scored_in,
            }
            for entry in self.entries
        ]

    def restore(self, state: list[dict[str, Any]]) -> None:
        self.entries = [Entry(**fields) for fields in state]
        for entry, fields in zip(self.entries, state, strict=True):
            entry.losses = None if fields["losses"] is None else Losses(fields["losses"])
