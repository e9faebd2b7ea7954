"""Selection rules: from which of the stored models a node goes on.

A rule is a generator over the requests, so it may ask for further scores; most only ask for a
`Select`.  It sees the candidates with their losses on this round's batch, the node's own last model
and the rule's private state, and answers with a `Choice`.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor

from basil.learning.pool import Batch
from basil.learning.promises import Losses, Pick, Selection
from basil.protocol.memory import INITIAL, Entry
from basil.protocol.requests import Score, Select
from basil.table import Table


@dataclass(slots=True, eq=False)
class Candidates:
    """What a rule may look at."""

    entries: list[Entry]  # nearest predecessor first
    losses: list[Losses]  # of each of them on this round's batch
    own: Tensor  # the node's own last model
    batch: Batch  # this round's, drawn before anything arrived
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def models(self) -> list[Tensor]:
        return [entry.model for entry in self.entries]

    @property
    def senders(self) -> tuple[int | None, ...]:
        """Who sent each candidate, and last oneself; None for x⁰ and for oneself."""
        return (*(None if e.sender == INITIAL else e.sender for e in self.entries), None)

    def choose(self, pick: Pick) -> "Deliberation":
        """Go on from the candidate that is picked; from one's own model if it is garbage."""
        selected = yield Select(self.models, self.losses, self.own, pick)
        assert isinstance(selected, Selection)
        return Choice(selected, selected)


@dataclass(slots=True, eq=False)
class Choice:
    """The model to train from, which may be a combination; the candidate that counts as selected;
    the rule's new state.
    """

    model: Tensor | Selection
    selected: Selection
    state: dict[str, Any] = field(default_factory=dict)


Deliberation: TypeAlias = Generator[Score | Select, Losses | Selection, Choice]
Rule: TypeAlias = Callable[[Candidates], Deliberation]


def lowest_loss(candidates: Candidates) -> Deliberation:
    """argmin over the stored models of the mean loss on this round's batch (Def. 1, eq. 3).

    A tie goes to the nearest predecessor, whose model has seen the most updates.
    """
    return (yield from candidates.choose(_lowest))


def newest(candidates: Candidates) -> Deliberation:
    """The nearest predecessor's model whatever its loss: no defence beyond refusing garbage."""
    return (yield from candidates.choose(_first_finite))


def _lowest(losses: Tensor, means: Tensor) -> Tensor:
    return means.argmin()


def _first_finite(losses: Tensor, means: Tensor) -> Tensor:
    return means.isinf().int().argmin()


RULES: Table[Callable[..., Deliberation]] = Table(
    "rule", {"lowest-loss": lowest_loss, "newest": newest}
)
