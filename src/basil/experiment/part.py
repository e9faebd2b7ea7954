"""One node's part in an experiment: everybody's place, but only its own samples.

A peer computes the same ring, graph and shares as everybody else from the recipe and its named
random streams, and keeps what is its own.  So a machine with data of its own differs from one that
takes its share of a common set in one point only: nothing is dealt.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from basil import rng
from basil.data import Dataset, Samples
from basil.data.sensitive import SENSITIVE
from basil.errors import UserError
from basil.experiment.cast import Cast, noise
from basil.experiment.options import options_of
from basil.recipe import NO_ATTACK, Recipe
from basil.recipe.schema import AttackPart


class Part(Cast):
    """The cast as node `node` has it.

    `role`: what this node does, whatever the recipe's own liars do.  `own`: `data` is this node's
    alone, not a common set of which it takes its share.
    """

    def __init__(
        self, recipe: Recipe, data: Dataset, node: int, role: AttackPart, own: bool = False
    ) -> None:
        self.node = node
        self._role, self._own = role, own
        super().__init__(recipe, data)
        if self.pooled:
            raise UserError(
                f"scheme.name = {recipe.scheme.name!r}: one node holds all data, so it has no peers"
            )
        self.members = [node]
        # How many all nodes hold together; of data that is nobody else's, as if all had as many.
        self.samples_in_all = len(data.train) * (recipe.ring.nodes if own else 1)
        self._keep_own(data)
        self.data = replace(data, train=self.train)  # the rest of a common set is let go

    def _deal(self, data: Dataset) -> dict[int, NDArray[np.int64]]:
        if self._own:
            return {self.node: np.arange(len(data.train))}
        return {self.node: super()._deal(data)[self.node]}

    def _hold_out(self, data: Dataset) -> NDArray[np.int64]:
        if self._own and self.shares and self._recipe.sharing.dummies == "held-out":
            raise UserError(
                'sharing.dummies = "held-out" takes samples of a common data set; with data of'
                ' one\'s own it must be "noise"'
            )
        return super()._hold_out(data)

    def _arm(self, part: AttackPart) -> None:
        lies = frozenset({self.node}) if self._role.name != NO_ATTACK else frozenset[int]()
        self.byzantine = self.byzantine - {self.node} | lies
        self.benign = [node for node in self.ring.order if node not in self.byzantine]
        super()._arm(self._role)

    def _keep_own(self, data: Dataset) -> None:
        """Let go of all samples but this node's, and the dummies that everybody has."""
        part, node, local = self._recipe.sharing, self.node, self.local[self.node]
        mark, options = SENSITIVE[part.sensitive], options_of(part, SENSITIVE, "sensitive")
        self.sensitive = mark(data.train, **options)[local]
        train, kept = self.train, [local]
        self.local = {node: np.arange(len(local))}
        if node in self.poisoned:
            kept.append(self.poisoned[node])
            self.poisoned = {node: len(local) + np.arange(len(local))}
        if self._own and self.shares:  # everybody's dummies, whatever data anybody has
            count = max(1, int(part.alpha * self.samples_in_all))
            stream = rng.stream(self._recipe.seed, "dummies")
            labels = np.arange(data.classes or 2).astype(data.train.y.dtype)
            self.public_samples = noise(data.train, labels, count, stream)
        else:
            self.public_samples = Samples(train.x[self.dummies], train.y[self.dummies])
        chosen = np.concatenate(kept)
        self.train = Samples(train.x[chosen], train.y[chosen])

    def offered(self) -> Samples:
        """What this node may share; a liar's are those that it trains on itself."""
        own = self.poisoned.get(self.node, self.local[self.node])[~self.sensitive]
        return Samples(self.train.x[own], self.train.y[own])

    def take_in(self, samples: Samples) -> None:
        """Train on what was received from others, too."""
        start = len(self.train)
        x = np.concatenate([self.train.x, samples.x])
        self.train = Samples(x, np.concatenate([self.train.y, samples.y]))
        self.received = {self.node: start + np.arange(len(samples))}
        self.data = replace(self.data, train=self.train)
