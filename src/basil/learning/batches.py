"""The mini-batches of one turn."""

import numpy as np
from numpy.typing import NDArray

from basil.learning.pool import Batch


def draw_batches(
    local: NDArray[np.int64],
    rng: np.random.Generator,
    size: int,
    steps: int,
    epochs: int,
) -> tuple[Batch, ...]:
    """`steps` batches, or the batches of `epochs` whole passes if epochs is positive.

    Samples are drawn without replacement until all have been used, then anew.  The first batch
    also serves for the selection (caption of Fig. 2).  A node that has fewer samples than `size`
    uses all it has.
    """
    size = min(size, len(local))
    if epochs > 0:
        passes = [rng.permutation(local) for _ in range(epochs)]
        pieces = [p[i : i + size] for p in passes for i in range(0, len(p), size)]
    else:
        count = max(1, -(-steps * size // max(1, len(local))))
        order = np.concatenate([rng.permutation(local) for _ in range(count)])
        pieces = [order[i * size : (i + 1) * size] for i in range(steps)]
    return tuple(Batch(piece) for piece in pieces)


def draw_by_class(
    local: NDArray[np.int64], labels: NDArray[np.int64], rng: np.random.Generator, size: int
) -> Batch:
    """A batch in which each class has as many samples, as far as there are so many of it.

    One sample of each class, then a second one of each, and so on, up to `size`; which ones, and
    which classes come first, is left to chance.
    """
    order = rng.permutation(len(local))
    _, classes, counts = np.unique(labels[order], return_inverse=True, return_counts=True)
    nth = np.empty(len(local), np.int64)  # of its class
    nth[np.argsort(classes, kind="stable")] = np.concatenate([np.arange(n) for n in counts])
    some = np.argsort(nth, kind="stable")[:size]
    return Batch(local[order[some]], classes[some])
