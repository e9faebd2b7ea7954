"""One node's part in an experiment: everybody's place, but only its own samples.

A peer computes the same ring, graph and shares as everybody else from the recipe and its named
random streams, and keeps what is its own.  So a machine with data of its own differs from one that
takes its share of a common set in one point only: nothing is dealt.
"""

import secrets
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from basil.data import Dataset, Samples
from basil.errors import UserError
from basil.experiment.cast import Cast
from basil.experiment.offers import Offers
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
        self._keep_own()
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

    def _offer(self, data: Dataset) -> Offers:
        """As in a simulation, but with noise that nobody can draw again and take off."""
        like, samples = data.train, len(data.train)
        if self._recipe.sharing.compress:
            raise UserError("sharing.compress: peers send baskets as they are; leave it out")
        if self._own:  # everybody's dummies are the same, whatever data anybody has
            labels = np.arange(data.classes or 2).astype(like.y.dtype)
            like = Samples(like.x, labels)
            samples *= self._recipe.ring.nodes  # as if all had as many
        return self._offer_of(
            data,
            like,
            samples,
            lambda node: np.random.Generator(np.random.PCG64(secrets.randbits(256))),
        )

    def _keep_own(self) -> None:
        """Let go of all samples but this node's, and the dummies that everybody has."""
        node, train, offers = self.node, self.train, self.offers
        kept = [self.local[node]]
        self.local = {node: np.arange(len(kept[0]))}
        if node in self.poisoned:
            kept.append(self.poisoned[node])
            self.poisoned = {node: len(kept[0]) + np.arange(len(kept[0]))}
        if offers is not None:
            mine = offers.of[node]
            self.offered = Samples(train.x[mine], train.y[mine])
            self.public_samples = offers.dummy_samples()
        chosen = np.concatenate(kept)
        self.train = Samples(train.x[chosen], train.y[chosen])

    def take_in(self, samples: Samples) -> None:
        """Train on what was received from others, too."""
        start = len(self.train)
        x = np.concatenate([self.train.x, samples.x])
        self.train = Samples(x, np.concatenate([self.train.y, samples.y]))
        self.received = {self.node: start + np.arange(len(samples))}
        self.data = replace(self.data, train=self.train)
