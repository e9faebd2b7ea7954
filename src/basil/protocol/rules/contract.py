"""What a selection rule sees and what it answers.

A rule is a generator over the requests, so it may ask for further scores; most only ask for a
`Select`.  It sees the candidates with their losses on this round's batch, the node's own last model
and the rule's private state, and answers with a `Choice`.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from basil.learning.pool import Batch
from basil.learning.promises import Losses, Pick, Selection, sent, tensor_of
from basil.protocol.memory import INITIAL, Entry
from basil.protocol.requests import Combine, Score, Select


@dataclass(slots=True, eq=False)
class Candidates:
    """What a rule may look at."""

    entries: list[Entry]  # nearest predecessor first
    losses: list[Losses]  # of each of them on this round's batch
    own: Tensor  # the node's own last model
    batch: Batch  # this round's, drawn before anything arrived
    state: dict[str, Any] = field(default_factory=dict)  # what the rule left a round ago
    own_losses: Losses | None = None  # where the rule states `scores_own`

    @property
    def models(self) -> list[Tensor]:
        return [entry.model for entry in self.entries]

    @property
    def senders(self) -> tuple[int | None, ...]:
        """Who sent each candidate, and last oneself; None for x⁰ and for oneself."""
        return (*(None if e.sender == INITIAL else e.sender for e in self.entries), None)

    def without(self, place: int) -> "Candidates":
        """The others."""
        entries, losses = self.entries[:], self.losses[:]
        del entries[place], losses[place]
        return replace(self, entries=entries, losses=losses)

    @property
    def strata(self) -> tuple[Tensor] | tuple[()]:
        """The class of each sample, where models are judged class by class."""
        strata = self.batch.strata
        return () if strata is None else (sent(torch.from_numpy(strata), self.own.device),)

    def score_own(self) -> Generator[Score, Losses, Losses]:
        """The losses of the node's own last model."""
        if self.own_losses is None:
            self.own_losses = yield Score(self.own, self.batch)
        return self.own_losses

    def choose(self, pick: Pick, own: Losses | None = None) -> "RuleGenerator":
        """Go on from the candidate that is picked; from one's own model if it is garbage.

        With the losses of one's own model the pick sees them as the last row, and may name it.
        """
        losses = self.losses if own is None else [*self.losses, own]
        selected = yield Select(self.models, losses, self.own, pick)
        return Choice(selected, selected)


@dataclass(slots=True, eq=False)
class Choice:
    """The model to train from, which may be a combination; the candidate that counts as selected;
    the rule's new state, with the model to train from as `start` if it remembers that.
    """

    model: Tensor | Selection
    selected: Selection
    state: dict[str, Any] = field(default_factory=dict)

    def begun_at(self, model: Tensor | Selection) -> "Choice":
        """The same choice, but training begins at another model, of which the rule is told."""
        knows = {"start": tensor_of(model)} if "start" in self.state else {}
        return Choice(model, self.selected, self.state | knows)


RuleGenerator: TypeAlias = Generator[Score | Select | Combine, Any, Choice]
Rule: TypeAlias = Callable[[Candidates], RuleGenerator]
