"""One node of an experiment alone: everybody's place, but only its own samples.

A peer computes the same ring, graph and shares as everybody else from the recipe and its named
random streams, and keeps what is its own.  So a machine with data of its own differs from one that
takes its share of a common set in one point only: nothing is dealt.
"""

import secrets
from dataclasses import dataclass, replace

import numpy as np

from basil.data import Dataset, Samples
from basil.errors import UserError
from basil.experiment.node_data import NONE, NodeData, deal, hold_out, offer, poison
from basil.experiment.participants import Participants, gather_for
from basil.recipe import Recipe
from basil.recipe.schema import AttackPart


@dataclass(eq=False)
class LocalNode:
    """What one node holds, and what it may share."""

    node: int
    data: Dataset  # with this node's training samples only
    node_data: NodeData
    offered: Samples | None = None  # if data is shared
    public_samples: Samples | None = None  # dummies, which everybody has

    @property
    def participants(self) -> Participants:
        return self.node_data.participants

    def take_in(self, samples: Samples) -> None:
        """Train on what was received from others, too."""
        start, before = len(self.data.train), self.data.train
        train = Samples(
            np.concatenate([before.x, samples.x]), np.concatenate([before.y, samples.y])
        )
        received = {self.node: start + np.arange(len(samples))}
        self.node_data = replace(self.node_data, train=train, received=received)
        self.data = replace(self.data, train=train)


def local_node(
    recipe: Recipe, data: Dataset, node: int, role: AttackPart, own: bool = False
) -> LocalNode:
    """`role`: what this node does, whatever the recipe's own Byzantine nodes do.

    `own`: `data` is this node's alone, not a common set of which it takes its share.
    """
    participants = gather_for(recipe, node, role)
    if participants.pooled:
        raise UserError(
            f"scheme.name = {recipe.scheme.name!r}: one node holds all data, so it has no peers"
        )
    if own and participants.shares and recipe.sharing.dummies == "held-out":
        raise UserError(
            'sharing.dummies = "held-out" takes samples of a common data set; with data of'
            ' one\'s own it must be "noise"'
        )
    public = NONE if own else hold_out(participants, data)
    local = np.arange(len(data.train)) if own else deal(participants, data, public)[node]
    held = poison(participants, data, {node: local}, public)
    return _keep_own(_offer(held, data, own) if participants.shares else held, data, node)


def _offer(held: NodeData, data: Dataset, own: bool) -> NodeData:
    """As in a simulation, but with noise that nobody can draw again and take off."""
    recipe = held.participants.recipe
    like, samples = data.train, len(data.train)
    if own:  # everybody's dummies are the same, whatever data anybody has
        labels = np.arange(data.classes or 2).astype(like.y.dtype)
        like = Samples(like.x[np.arange(len(labels)) % len(like.x)], labels)
        samples *= recipe.ring.nodes  # as if all had as many
    return offer(held, data, like, samples, _secret_stream)


def _secret_stream(node: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(secrets.randbits(256)))


def _keep_own(held: NodeData, data: Dataset, node: int) -> LocalNode:
    """Let go of all samples but this node's, and the dummies that everybody has."""
    train, offers, kept = held.train, held.offers, [held.local[node]]
    count = len(kept[0])
    lies = {}
    if node in held.poisoned:
        kept.append(held.poisoned[node])
        lies = {node: count + np.arange(count)}
    chosen = np.concatenate(kept)
    mine = Samples(train.x[chosen], train.y[chosen])
    found = LocalNode(
        node,
        replace(data, train=mine),
        replace(held, train=mine, local={node: np.arange(count)}, poisoned=lies),
    )
    if offers is not None:
        found.offered = Samples(train.x[offers.of[node]], train.y[offers.of[node]])
        found.public_samples = offers.dummy_samples()
    return found
