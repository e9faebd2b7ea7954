"""What takes the place of PyTorch in a ruined night: softmax regression in a few lines of numpy.

A call of PyTorch costs more than the arithmetic on so small a model, and nothing that must hold in
a night depends on what is learnt.  A quiet night, which is compared with the simulator bit for
bit, computes with the real thing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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


@contextmanager
def instead_of_torch() -> Iterator[None]:
    with (
        patch.multiple(Compute, score=_score, train=_train, _tested=_tested),
        np.errstate(all="ignore"),  # models of Byzantine nodes overflow
    ):
        yield


def _score(self: Compute, model: Tensor, batches: Sequence[Batch]) -> list[Losses]:
    losses = [_losses(self.pool, model.numpy(), batch)[0] for batch in batches]
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
        _, shares, x, y = _losses(self.pool, vector, batch)
        shares[np.arange(len(y)), y] -= 1
        shares *= np.float32(rate / len(y))
        weights, bias = _parts(vector, shares.shape[1])
        weights -= shares.T @ x
        bias -= shares.sum(0)
    return self._formed(self._form(torch.from_numpy(vector)))


def _tested(
    self: Compute, models: Sequence[Tensor], pool: Pool, samples: int, tallies: object = ()
) -> Tested:
    whole = Batch(np.arange(samples))
    found: Tested = []
    for model in models:
        losses, shares, _, y = _losses(pool, model.numpy(), whole)
        found.append((float(losses.mean()), float((shares.argmax(1) == y).mean())))
    return found


def _losses(pool: Pool, vector: Array, batch: Batch) -> tuple[Array, Array, Array, Any]:
    """Of each sample; the classes' shares; inputs and labels."""
    inputs, labels = pool.inputs(batch)
    x, y = inputs.numpy().reshape(len(inputs), -1), labels.numpy()
    weights, bias = _parts(vector, vector.size // (x.shape[1] + 1))
    scores = x @ weights.T + bias
    scores -= scores.max(1, keepdims=True)
    shares = np.exp(scores)
    total = shares.sum(1)
    losses = np.log(total) - scores[np.arange(len(y)), y]
    shares /= total[:, None]
    return losses, shares, x, y


def _parts(vector: Array, classes: int) -> tuple[Array, Array]:
    """Views of weights and bias, as `nn.Linear` has them."""
    return vector[:-classes].reshape(classes, -1), vector[-classes:]
