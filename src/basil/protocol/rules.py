"""Selection rules: from which of the stored models a node goes on.

A rule is a generator over the requests, so it may ask for further scores; most need none.  It sees
the usable candidates (a model with a value or a loss that is not finite never gets this far), the
node's own last model and the rule's private state, and returns a `Choice`: the model to train from,
which may be a combination; the candidate that counts as selected; and the new state.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from basil.protocol.memory import Entry
from basil.protocol.requests import Score
from basil.table import Table


@dataclass(frozen=True, eq=False)
class Candidates:
    """What a rule may look at."""

    entries: list[Entry]  # nearest predecessor first
    losses: Tensor  # [candidate, sample], on this round's batch
    own: Tensor  # the node's own last model
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Choice:
    """What a rule decided."""

    model: Tensor
    selected: Entry | None  # None: the node's own last model
    state: dict[str, Any] = field(default_factory=dict)


Deliberation: TypeAlias = Generator[Score, Tensor, Choice]
Rule: TypeAlias = Callable[[Candidates], Deliberation]


def lowest_loss(candidates: Candidates) -> Deliberation:
    """argmin over the stored models of the mean loss on this round's batch (Def. 1, eq. 3).

    A tie goes to the nearest predecessor, whose model has seen the most updates.
    """
    yield from ()
    means = candidates.losses.mean(1, dtype=torch.float64)
    best = candidates.entries[int(means.argmin())]
    return Choice(best.model, best)


def newest(candidates: Candidates) -> Deliberation:
    """The nearest predecessor's model whatever its loss: no defence beyond refusing garbage."""
    yield from ()
    return Choice(candidates.entries[0].model, candidates.entries[0])


RULES: Table[Callable[..., Deliberation]] = Table(
    "rule", {"lowest-loss": lowest_loss, "newest": newest}
)
