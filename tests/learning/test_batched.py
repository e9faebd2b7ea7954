"""The joined path against the plain one: the same numbers up to the order of sums."""

import copy
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from basil.data import Samples
from basil.learning.batched import BatchedCompute
from basil.learning.compute import Compute
from basil.learning.models import cifar_cnn, cross_entropy, mlp
from basil.learning.pool import Batch, Pool

CLOSE = {"rtol": 1e-4, "atol": 1e-6}


@dataclass
class Job:
    model: Tensor
    batches: tuple[Batch, ...]
    rate: float
    key: object = field(default=lambda: 0)


def dropout() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 9), nn.Dropout(0.5), nn.Linear(9, 10))


NETWORKS = {
    "dense": (lambda: mlp((3, 32, 32), 10, hidden=9), True),
    "dense and large": (lambda: mlp((3, 32, 32), 10), False),
    "convolutions": (lambda: cifar_cnn((3, 32, 32), 10), False),
    "dropout": (dropout, False),
}


def both(name: str) -> tuple[Compute, BatchedCompute]:
    torch.manual_seed(0)
    stream = np.random.default_rng(0)
    x = stream.integers(0, 256, (300, 3, 32, 32), dtype=np.uint8)
    pool = Pool(Samples(x, stream.integers(0, 10, 300)), (120.0,) * 3, (60.0,) * 3)
    build, joins = NETWORKS[name]
    module = build()
    plain = Compute(copy.deepcopy(module), cross_entropy, pool)
    batched = BatchedCompute(module, cross_entropy, pool)
    assert batched.joins == joins
    return plain, batched


def batches(*sizes: int) -> tuple[Batch, ...]:
    stream = np.random.default_rng(sum(sizes))
    return tuple(Batch(stream.permutation(300)[:size]) for size in sizes)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("sizes", [(8,), (8, 8, 3)])
def test_many_trainings_at_once(name: str, sizes: tuple[int, ...]) -> None:
    plain, batched = both(name)
    starts = [plain.initial + 0.01 * i for i in range(5)]
    jobs = [Job(s, batches(*sizes), 0.05 * (i + 1)) for i, s in enumerate(starts)]
    for a, b in zip(plain.train_together(jobs), batched.train_together(jobs), strict=True):  # type: ignore[arg-type]
        torch.testing.assert_close(a, b, **CLOSE)
    assert all(torch.equal(s, plain.initial + 0.01 * i) for i, s in enumerate(starts))


def test_nodes_with_unequal_batches_are_not_joined() -> None:
    plain, batched = both("dense")
    jobs = [Job(plain.initial, batches(8), 0.1), Job(plain.initial, batches(5), 0.1)]
    for a, b in zip(plain.train_together(jobs), batched.train_together(jobs), strict=True):  # type: ignore[arg-type]
        assert torch.equal(a, b)


def test_one_model_on_many_batches() -> None:
    plain, batched = both("dense")
    some = batches(8, 3, 11)
    for a, b in zip(
        plain.score(plain.initial, some), batched.score(plain.initial, some), strict=True
    ):
        torch.testing.assert_close(a.wait(), b.wait(), **CLOSE)
    bad = plain.initial.clone()
    bad[0] = torch.nan
    assert [losses.wait().isinf().all() for losses in batched.score(bad, some)] == [True] * 3
