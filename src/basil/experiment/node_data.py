"""Which samples each node holds, and the batches that it draws from them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from basil import rng
from basil.attack import DataAttack, poisoned
from basil.data import PARTITIONS, Dataset, Samples
from basil.data.partition import dealt_by
from basil.data.samples import are_tokens
from basil.errors import UserError
from basil.experiment.offers import Offers, batch_size, make_dummies, make_offers
from basil.experiment.options import options_of
from basil.experiment.participants import Participants
from basil.learning.batches import draw_batches, draw_by_class
from basil.learning.pool import Batch, augment
from basil.protocol.numbering import Numbering

Numbers = NDArray[np.int64]
NONE: Numbers = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class NodeData:
    """By their numbers in `train`: the data set's samples, then poisoned and noisy copies."""

    participants: Participants
    train: Samples
    local: Mapping[int, Numbers]
    public: Numbers  # samples that no node owns
    poisoned: Mapping[int, Numbers]  # what Byzantine nodes use instead of their own
    offers: Offers | None = None  # for the sharing
    received: Mapping[int, Numbers] = field(default_factory=dict)  # from others, by sharing

    def samples(self, node: int, k: int) -> Numbers:
        """What a node draws from in round k."""
        if self.participants.pooled:
            return self._pool
        attack = self.participants.attack
        lies = node in self.poisoned and attack is not None and attack.lies_in(k)
        own = self.poisoned[node] if lies else self.local[node]
        return np.concatenate([own, self.received[node]]) if node in self.received else own

    @cached_property
    def _pool(self) -> Numbers:
        """The data of all benign nodes."""
        return np.concatenate([self.local[node] for node in self.participants.benign])

    @cached_property
    def numbering(self) -> Numbering:
        recipe = self.participants.recipe
        return Numbering(recipe.laps, joined=recipe.groups > 1)

    def draw(self, node: int, k: int) -> tuple[Batch, ...]:
        """The batches of a node's turn in round k of its ring."""
        people, recipe = self.participants, self.participants.recipe
        learning, turn = recipe.learning, (recipe.seed, "node", node, "round", k)
        batches = draw_batches(
            self.samples(node, self.numbering.global_round(k)),
            rng.stream(*turn, "batch"),
            learning.batch,
            learning.local_steps * (len(people.benign) if people.pooled else 1),
            learning.local_epochs,
        )
        if not recipe.data.augment:
            return batches
        ways = rng.stream(*turn, "augment")
        return tuple(Batch(augment(batch.indices, ways)) for batch in batches)

    def judge(self, node: int, k: int, drawn: tuple[Batch, ...]) -> Batch:
        """What a node judges models on in round k: the first batch of its turn, or one by class."""
        recipe = self.participants.recipe
        if not recipe.scheme.by_class:
            return drawn[0]
        samples = self.samples(node, self.numbering.global_round(k))
        stream = rng.stream(recipe.seed, "node", node, "round", k, "judge")
        return draw_by_class(samples, self.train.y[samples], stream, recipe.learning.batch)

    def steps_in_a_turn(self) -> int:
        """SGD steps in a turn of the node with the most data."""
        most = max(self.participants.members, key=lambda node: len(self.samples(node, 1)))
        return len(self.draw(most, 1))


def distribute(participants: Participants, data: Dataset) -> NodeData:
    """Deal the data set to all nodes, and make ready what they will share."""
    public = hold_out(participants, data)
    held = poison(participants, data, deal(participants, data, public), public)
    return offer(held, data, data.train, len(data.train)) if participants.shares else held


def hold_out(participants: Participants, data: Dataset) -> Numbers:
    part = participants.recipe.sharing
    if not participants.shares or part.dummies != "held-out":
        return NONE
    count = int(part.public * len(data.train))
    if count < 1:
        raise UserError(
            f"sharing.public = {part.public}: of {len(data.train)} samples that is none"
        )
    stream = rng.stream(participants.recipe.seed, "public")
    return np.sort(stream.permutation(len(data.train))[:count])


def deal(participants: Participants, data: Dataset, public: Numbers) -> dict[int, Numbers]:
    """Each node's share of the data set, by the recipe's partition."""
    recipe = participants.recipe
    partition = PARTITIONS[recipe.data.partition]
    options = options_of(recipe.data, PARTITIONS, "partition")
    stream = rng.stream(recipe.seed, "partition")
    labels = np.delete(dealt_by(recipe.data.partition, data.train), public, axis=0)
    parts = partition(labels, recipe.data.dealt_to or recipe.ring.nodes, stream, **options)
    if recipe.data.dealt_to:  # more have data than take part
        some = rng.stream(recipe.seed, "participants").permutation(len(parts))
        parts = [parts[i] for i in np.sort(some[: recipe.ring.nodes])]
    if len(public):
        owned = np.delete(np.arange(len(data.train)), public)
        parts = [owned[part] for part in parts]
    largest = max(map(len, parts))
    if recipe.learning.batch > largest:
        raise UserError(
            f"learning.batch = {recipe.learning.batch}: no node has more than {largest} samples"
        )
    return dict(enumerate(parts))


def poison(
    participants: Participants, data: Dataset, local: Mapping[int, Numbers], public: Numbers
) -> NodeData:
    """What nodes hold, with the poisoned copies that Byzantine nodes use if they attack data."""
    armed = participants.attack
    if armed is None or not isinstance(armed.attack, DataAttack):
        return NodeData(participants, data.train, local, public, {})
    theirs = {node: local[node] for node in sorted(participants.byzantine & local.keys())}
    seed = participants.recipe.seed
    train, lies = poisoned(armed.attack, data, theirs, seed, dict(armed.options))
    return NodeData(participants, train, local, public, lies)


def offer(
    held: NodeData,
    data: Dataset,
    like: Samples,
    samples: int,
    chance: Callable[[int], np.random.Generator] | None = None,
) -> NodeData:
    """With what nodes will share.

    `like`: what dummies look like; `samples`: how many all nodes hold together; `chance`: where a
    node's noise comes from, see `make_offers`.
    """
    recipe = held.participants.recipe
    if are_tokens(data.train.x) or data.train.y.ndim > 1:
        raise UserError(
            f"sharing.alpha = {recipe.sharing.alpha}: tokens, and samples with several targets,"
            " cannot be shared yet"
        )
    size, made = batch_size(recipe, samples), make_dummies(recipe, like, samples)
    offers = make_offers(
        recipe, data, held.train, held.local, held.poisoned, held.public, size, made, chance
    )
    return replace(held, train=offers.train, offers=offers)


def triggered(participants: Participants, data: Dataset) -> Samples | None:
    """Test samples on which a backdoor wants its own label."""
    armed = participants.attack
    if armed is None or not isinstance(armed.attack, DataAttack) or armed.attack.triggered is None:
        return None
    samples: Samples = armed.attack.triggered(data.test, data, **armed.options)
    return samples
