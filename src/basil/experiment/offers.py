"""What each node hands to the sharing: nothing sensitive, and noisy copies where they are wanted.

The protocol is handed nothing else, and what is not handed over cannot leave.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from basil import rng
from basil.data import Dataset, Samples
from basil.data.noise import Noise
from basil.data.samples import Array
from basil.data.sensitive import SENSITIVE
from basil.errors import UserError
from basil.experiment.options import options_of
from basil.recipe import Recipe

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Offers:
    """By number: those below len(train) can be trained on; dummies that were made come after."""

    train: Samples  # what there was, followed by noisy copies
    of: Mapping[int, Numbers]  # node -> what it may share
    dummies: Numbers
    made: Samples  # dummies of noise, or from a file: nobody trains on them
    size: int  # M, samples in a batch
    noise: Noise | None = None

    def __len__(self) -> int:
        """Of all that can be in a basket."""
        return len(self.train) + len(self.made)

    def rows(self, numbers: Numbers) -> NDArray[np.uint8]:
        """The bytes of x and of the label, as they would be on the wire; zeros for what is none."""
        x = np.zeros((len(numbers), *self.train.x.shape[1:]), self.train.x.dtype)
        y = np.zeros(len(numbers), self.train.y.dtype)
        for samples, first in ((self.train, 0), (self.made, len(self.train))):
            here = (numbers >= first) & (numbers < first + len(samples))
            x[here], y[here] = samples.x[numbers[here] - first], samples.y[numbers[here] - first]
        labels = y.astype(label_type(self.train.y)).view(np.uint8)
        return np.concatenate([x.view(np.uint8).reshape(len(x), -1), labels.reshape(len(x), -1)], 1)

    def dummy_samples(self) -> Samples:
        if len(self.made):
            return self.made
        return Samples(self.train.x[self.dummies], self.train.y[self.dummies])


def make_offers(
    recipe: Recipe,
    data: Dataset,
    train: Samples,
    own: Mapping[int, Numbers],
    lies: Mapping[int, Numbers],
    public: Numbers,
    size: int,
    made: Samples,
    chance: Callable[[int], np.random.Generator] | None = None,
) -> Offers:
    """`own`: each node's samples; `lies`: those that it uses instead; `public`: held out.

    `size`: of a batch; `made`: dummies that are no samples, if there are such.  `chance`: where a
    node's noise comes from; by default a named stream, as in all simulations.
    """
    chance = chance or (lambda node: rng.stream(recipe.seed, "node", node, "noise"))
    part = recipe.sharing
    sensitive = SENSITIVE[part.sensitive](data.train, **options_of(part, SENSITIVE, "sensitive"))
    offers = {
        node: lies.get(node, numbers)[~sensitive[numbers]]  # lies are in the same order
        for node, numbers in own.items()
    }
    noise = None
    if part.epsilon > 0:
        noise = Noise(part.epsilon, part.delta, part.clip, part.label_epsilon)
        train, offers = _noisy(data, train, offers, size * part.batches, noise, chance)
    dummies = np.arange(len(train), len(train) + len(made)) if len(made) else public
    return Offers(train, offers, dummies, made, size, noise)


def label_type(labels: Array) -> np.dtype[Any]:
    """One byte for up to 256 classes, else four."""
    if not np.issubdtype(labels.dtype, np.integer):
        return np.dtype(np.float32)
    return np.dtype(np.uint8 if labels.max(initial=0) < 256 else np.uint32)


def batch_size(recipe: Recipe, samples: int) -> int:
    """M = αD/H, with the D of a fair share: one number for all, so that no size tells an owner."""
    alpha, H = recipe.sharing.alpha, recipe.sharing.batches
    N = recipe.data.dealt_to or recipe.ring.nodes
    size = int(alpha * (samples // N) / H + 1e-9)
    if size < 1:
        raise UserError(
            f"sharing.alpha = {alpha}: of {samples // N} samples that is less than one for each of"
            f" {H} batches; set sharing.batches to {int(alpha * (samples // N))} or raise alpha"
        )
    return size


def _noisy(
    data: Dataset,
    train: Samples,
    offers: dict[int, Numbers],
    count: int,
    noise: Noise,
    chance: Callable[[int], np.random.Generator],
) -> tuple[Samples, dict[int, Numbers]]:
    """For each node so many of its samples, drawn at random, as noisy copies."""
    made, total, numbers = [train], len(train), {}
    for node, those in offers.items():
        stream = chance(node)
        chosen = stream.permutation(those)[:count]
        copies = noise.of(Samples(train.x[chosen], train.y[chosen]), data, stream)
        made.append(copies)
        numbers[node] = np.arange(total, total + len(copies))
        total += len(copies)
    joined = Samples(np.concatenate([s.x for s in made]), np.concatenate([s.y for s in made]))
    return joined, numbers


def make_dummies(recipe: Recipe, like: Samples, samples: int) -> Samples:
    """What nobody trains on: noise, or what a file holds; nothing where public data is held out.

    As many as a share α of all nodes' `samples`.
    """
    part = recipe.sharing
    if part.dummies == "held-out":
        return Samples(like.x[:0], like.y[:0])
    if part.dummies == "file":
        return _from_file(part.public_file, like)
    count = max(1, int(part.alpha * samples))
    stream = rng.stream(recipe.seed, "dummies")
    shape = (count, *like.x.shape[1:])
    if like.x.dtype == np.uint8:
        x: Array = stream.integers(256, size=shape, dtype=np.uint8)
    else:
        x = stream.normal(size=shape).astype(like.x.dtype)
    return Samples(x, stream.choice(like.y, count))


def _from_file(file: str, train: Samples) -> Samples:
    """Dummies that somebody else has made: x and y as in the training set."""
    try:
        with np.load(Path(file), allow_pickle=False) as found:
            x, y = found["x"], found["y"]
    except (OSError, ValueError, EOFError, KeyError, BadZipFile) as error:
        raise UserError(
            f"sharing.public_file = {file!r} is no .npz file with x and y: {error}"
        ) from error
    if x.shape[1:] != train.x.shape[1:] or x.dtype != train.x.dtype or not 0 < len(x) == len(y):
        raise UserError(
            f"sharing.public_file = {file!r}: x must be {train.x.dtype}"
            f" {['n', *train.x.shape[1:]]} and y have a label for each; x is {x.dtype}"
            f" {list(x.shape)}, y {list(y.shape)}"
        )
    return Samples(x, y.astype(train.y.dtype))
