"""What takes the place of PyTorch in a ruined night: softmax regression in a few lines of numpy.

A call of PyTorch costs more than the arithmetic on so small a model, and nothing that must hold in
a night depends on what is learnt.  A quiet night, which is compared with the simulator bit for
bit, computes with the real thing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from basil.learning.compute import Compute, Tested
from basil.learning.pool import Batch, Pool
from basil.learning.promises import Losses, Selection, tensor_of

Array = NDArray[np.float32]
Labels = tuple[NDArray[np.int64], NDArray[np.int64]]


@contextmanager
def instead_of_torch() -> Iterator[None]:
    with (
        patch.multiple(Compute, score=_score, train=_train, _tested=_tested),
        np.errstate(all="ignore"),  # models of Byzantine nodes overflow
    ):
        yield


def _score(self: Compute, model: Tensor, batches: Sequence[Batch]) -> list[Losses]:
    vector = model.numpy()
    losses = [_losses(vector, *_arrays(self.pool, batch))[0] for batch in batches]
    return [Losses(torch.from_numpy(np.where(np.isfinite(x), x, np.inf))) for x in losses]


def _train(
    self: Compute,
    model: Tensor | Selection,
    batches: Sequence[Batch],
    rate: float,
    key: Callable[[], int],
    memory: dict[str, Any] | None = None,
) -> Tensor:
    vector = tensor_of(model).numpy().copy()
    for batch in batches:
        x, labels = _arrays(self.pool, batch)
        shares = _shares(*_losses(vector, x, labels)[1:])
        shares[labels] -= 1
        shares *= np.float32(rate / len(x))
        weights, bias = _parts(vector, shares.shape[1])
        weights -= shares.T @ x
        bias -= shares.sum(0)
    return self._formed(self._form(torch.from_numpy(vector)))


def _tested(
    self: Compute, models: Sequence[Tensor], pool: Pool, samples: int, tallies: object = ()
) -> Tested:
    x, labels = _arrays(pool, _first(pool, samples))
    found: Tested = []
    for model in models:
        losses, odds, total = _losses(model.numpy(), x, labels)
        right = _shares(odds, total).argmax(1) == labels[1]
        found.append((float(losses.mean()), float(right.mean())))
    return found


@lru_cache(maxsize=64)
def _first(pool: Pool, samples: int) -> Batch:
    """So many of them."""
    return Batch(np.arange(samples))


@lru_cache(maxsize=4096)  # `known` keeps batches
def _arrays(pool: Pool, batch: Batch) -> tuple[Array, Labels]:
    """Inputs as rows, and where in a matrix of classes the labels are."""
    inputs, labels = pool.inputs(batch)
    return inputs.numpy().reshape(len(inputs), -1), (np.arange(len(labels)), labels.numpy())


def _losses(vector: Array, x: Array, labels: Labels) -> tuple[Array, Array, Array]:
    """Of each sample; the odds of its classes, and their sum."""
    weights, bias = _parts(vector, vector.size // (x.shape[1] + 1))
    scores = x @ weights.T + bias
    scores -= scores.max(1, keepdims=True)
    odds = np.exp(scores)
    total = odds.sum(1)
    return np.log(total) - scores[labels], odds, total


def _shares(odds: Array, total: Array) -> Array:
    odds /= total[:, None]
    return odds


def _parts(vector: Array, classes: int) -> tuple[Array, Array]:
    """Views of weights and bias, as `nn.Linear` has them."""
    return vector[:-classes].reshape(classes, -1), vector[-classes:]
