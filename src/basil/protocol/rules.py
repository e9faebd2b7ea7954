"""Selection rules: from which of the stored models a node goes on.

A rule is a generator over the requests, so it may ask for further scores; most need none.  It sees
the candidates with their losses on this round's batch, the node's own last model and the rule's
private state, and answers with a `Choice`.

Rules are written in tensor operations and never look at a value: on a GPU the losses may still be
on their way when a rule runs, and the index that it returns stays there.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor

from basil.learning.compute import Losses
from basil.protocol.memory import INITIAL, Entry
from basil.protocol.requests import Score
from basil.table import Table


@dataclass(frozen=True, eq=False)
class Candidates:
    """What a rule may look at."""

    entries: list[Entry]  # nearest predecessor first
    losses: Tensor  # [candidate, sample]
    own: Tensor  # the node's own last model
    state: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def means(self) -> Tensor:
        """Mean loss of each candidate; +inf for one with a value or a loss that is not finite."""
        means = self.losses.mean(1, dtype=torch.float64)
        return means.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=torch.inf)

    def choose(self, index: Tensor, state: dict[str, Any] | None = None) -> "Choice":
        """Go on from the candidate with this index; from one's own model if it is garbage."""
        own = len(self.entries)
        if index.is_cuda:  # stay on the device
            garbage = self.means.take(index).isinf()
            index = torch.where(garbage, own, index)
            models = torch.stack([*(entry.model for entry in self.entries), self.own])
            return Choice(models.index_select(0, index.view(1)).view(-1), index, state or {})
        which = int(index)
        if self.means[which].isinf():
            return Choice(self.own, torch.tensor(own), state or {})
        return Choice(self.entries[which].model, index, state or {})

    @property
    def senders(self) -> tuple[int | None, ...]:
        """Who sent each candidate, and last oneself; None for x⁰ and for oneself."""
        return (*(None if e.sender == INITIAL else e.sender for e in self.entries), None)


@dataclass(frozen=True, eq=False)
class Choice:
    """The model to train from, which may be a combination; the index of the candidate that counts
    as selected; the rule's new state.
    """

    model: Tensor
    index: Tensor
    state: dict[str, Any] = field(default_factory=dict)


Deliberation: TypeAlias = Generator[Score, Losses, Choice]
Rule: TypeAlias = Callable[[Candidates], Deliberation]


def lowest_loss(candidates: Candidates) -> Deliberation:
    """argmin over the stored models of the mean loss on this round's batch (Def. 1, eq. 3).

    A tie goes to the nearest predecessor, whose model has seen the most updates.
    """
    yield from ()
    return candidates.choose(candidates.means.argmin())


def newest(candidates: Candidates) -> Deliberation:
    """The nearest predecessor's model whatever its loss: no defence beyond refusing garbage."""
    yield from ()
    return candidates.choose(candidates.means.isinf().int().argmin())


RULES: Table[Callable[..., Deliberation]] = Table(
    "rule", {"lowest-loss": lowest_loss, "newest": newest}
)
