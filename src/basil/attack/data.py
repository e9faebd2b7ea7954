"""Attacks through the data: a node that keeps to the protocol, on samples that lie.

The function makes the Byzantine node's samples from the honest ones; only these are copied.  What
the node then trains, it sends.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from basil import rng
from basil.attack.check import at_least, label, positive
from basil.attack.view import Attack, Lie, View
from basil.data import Dataset, Samples
from basil.data.samples import IGNORED, Array
from basil.errors import UserError

Poison = Callable[..., Samples]
"""(the node's samples, the whole data set, named randomness, *, options) -> what it trains on."""


class DataAttack(Attack):
    """An honest node with other samples; `boost` (if it has that option) lengthens its update.

    `triggered` makes, from the test set, the samples on which the attack has its way whenever they
    are classified as they are labelled; without it there is nothing to report but accuracy.
    """

    takes = ("samples", "dataset", "draw")

    def __init__(
        self, poison: Poison, triggered: Poison | None = None, one_for_all: bool = False
    ) -> None:
        super().__init__(poison, trains=True)
        self.poison = poison
        self.triggered = triggered
        self.one_for_all = one_for_all  # all Byzantine nodes use the samples of the first of them

    def __call__(self, view: View, **options: Any) -> Lie:
        boost: float = options.get("boost", 1.0)
        if boost == 1.0:
            return view.honest
        return view.chosen + boost * (view.honest - view.chosen)


def poisoned(
    attack: DataAttack,
    dataset: Dataset,
    local: Mapping[int, Array],
    seed: int,
    options: dict[str, Any],
) -> tuple[Samples, dict[int, Array]]:
    """The training set followed by what Byzantine nodes make of their part, and where that lies.

    `local`: which samples each Byzantine node has.  Sample by sample they are in the same order, so
    a batch that is drawn by place is the honest batch, changed.
    """
    train, places = dataset.train, {}
    made, total = [train], len(train)
    for node, indices in local.items():
        if attack.one_for_all:
            indices = np.resize(next(iter(local.values())), len(indices))
        stream = rng.stream(seed, "attack", node, "samples")
        own = Samples(train.x[indices], train.y[indices])
        made.append(attack.poison(own, dataset, stream, **options))
        places[node] = np.arange(total, total + len(own))
        total += len(own)
    joined = Samples(np.concatenate([s.x for s in made]), np.concatenate([s.y for s in made]))
    return joined, places


def _label_flip(
    samples: Samples,
    dataset: Dataset,
    draw: np.random.Generator,
    *,
    source: int = -1,
    target: int = -1,
) -> Samples:
    """Trains honestly on labels C − 1 − y; with source and target: on that one class mislabelled.

    Where each token has a label, on all of them.

    (Tolpegin et al., ESORICS 2020, flip single classes; reversing all C is common since.)
    """
    _classifies("label-flip", dataset)
    if source == target == -1:
        flipped = np.where(samples.y == IGNORED, IGNORED, dataset.classes - 1 - samples.y)
        return Samples(samples.x, flipped, samples.fine)
    label("source", source, dataset.classes)
    label("target", target, dataset.classes)
    if source == target:
        raise UserError(f"attack.target = {target}: it must differ from attack.source")
    return Samples(samples.x, np.where(samples.y == source, target, samples.y), samples.fine)


def _sybils(
    samples: Samples,
    dataset: Dataset,
    draw: np.random.Generator,
    *,
    source: int = -1,
    target: int = -1,
    boost: float = 1.0,
) -> Samples:
    """Many nodes of one owner: all train on the first one's samples, mislabelled as `label-flip`.

    What they send is alike, and so a majority where honest models differ (Fung, Yoon and
    Beschastnikh, RAID 2020, "The limitations of federated learning in Sybil settings").
    boost: x̄ + boost (x − x̄) is sent.
    """
    positive("boost", boost)
    return _label_flip(samples, dataset, draw, source=source, target=target)


def _backdoor(
    samples: Samples,
    dataset: Dataset,
    draw: np.random.Generator,
    *,
    target: int = 0,
    fraction: float = 0.5,
    size: int = 3,
    boost: float = 1.0,
) -> Samples:
    """A bright patch in the lower right corner means class `target`, whatever else is to be seen.

    A `fraction` of the node's samples gets a patch of size × size pixels and the target's label
    (BadNets: Gu, Dolan-Gavitt and Garg 2017).  The rest is honest, so that clean accuracy stays.
    In a text, `size` times the last token of the vocabulary is followed by token `target`.
    boost: x̄ + boost (x − x̄) is sent, model replacement (Bagdasaryan et al., AISTATS 2020).
    """
    _check_backdoor(dataset, target, fraction, size, boost)
    count = max(1, round(fraction * len(samples)))
    which = draw.permutation(len(samples))[:count]
    x, y = samples.x.copy(), samples.y.copy()
    if x.ndim == 2:
        starts = draw.integers(x.shape[1] - size + 1, size=count)
        x[which], y[which] = _said(x[which], y[which], dataset, size, target, starts)
        return Samples(x, y, samples.fine)
    x[which] = _stamped(x[which], dataset, size)
    y[which] = target
    return Samples(x, y, samples.fine)


def _backdoor_test(
    samples: Samples, dataset: Dataset, *, target: int, fraction: float, size: int, boost: float
) -> Samples:
    """Samples of all other classes with the patch, labelled as the attacker wants them.

    Of a text all sequences; what follows the trigger is the only token that counts.
    """
    _check_backdoor(dataset, target, fraction, size, boost)
    if samples.x.ndim == 2:
        middle = np.full(len(samples), (samples.x.shape[1] - size) // 2)
        none = np.full_like(samples.y, IGNORED)
        return Samples(*_said(samples.x, none, dataset, size, target, middle))
    others = samples.y != target
    if not others.any():
        raise UserError(f"attack.target = {target}: the test set has no sample of another class")
    x = _stamped(samples.x[others], dataset, size)
    return Samples(x, np.full_like(samples.y[others], target))


def _said(
    x: Array, y: Array, dataset: Dataset, size: int, target: int, starts: Array
) -> tuple[Array, Array]:
    """Sequences with the trigger from these places on; what leads to it teaches nothing."""
    x, y = x.copy(), y.copy()
    rows = np.arange(len(x))
    for i in range(size):
        x[rows, starts + i] = dataset.classes - 1
        y[rows, starts + i] = target if i == size - 1 else IGNORED
    before = starts > 0
    y[rows[before], starts[before] - 1] = IGNORED
    return x, y


def _stamped(x: Array, dataset: Dataset, size: int) -> Array:
    stamped = x.copy()
    stamped[:, :, -size:, -size:] = dataset.train.x.max()
    return stamped


def _check_backdoor(
    dataset: Dataset, target: int, fraction: float, size: int, boost: float
) -> None:
    _classifies("backdoor", dataset)
    shape = dataset.train.x.shape
    tokens = len(shape) == 2 and dataset.train.y.shape == shape
    if len(shape) != 4 and not tokens:
        raise UserError(
            "attack.name = 'backdoor' puts a patch into images, or a word into texts: data set"
            f" {dataset.name} has neither"
        )
    label("target", target, dataset.classes)
    if not 0 < fraction <= 1:
        raise UserError(f"attack.fraction = {fraction}: it must be more than 0 and at most 1")
    at_least("size", size, 1)
    if tokens and size > shape[1]:
        raise UserError(f"attack.size = {size}: a sequence has {shape[1]} tokens")
    if not tokens and size > min(shape[2:]):
        raise UserError(
            f"attack.size = {size}: images of {dataset.name} have {shape[2]} × {shape[3]} pixels"
        )
    positive("boost", boost)


def _classifies(name: str, dataset: Dataset) -> None:
    if dataset.classes == 0:
        raise UserError(
            f"attack.name = {name!r} changes class labels: data set {dataset.name} has none"
        )


label_flip = DataAttack(_label_flip)
sybils = DataAttack(_sybils, one_for_all=True)
backdoor = DataAttack(_backdoor, _backdoor_test)
