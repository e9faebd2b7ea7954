"""The GPU path against the plain one on the same device (skipped where there is no GPU)."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from basil.data import Samples
from basil.learning.compute import Compute
from basil.learning.cuda import GraphCompute
from basil.learning.models import cifar_cnn, cross_entropy
from basil.learning.pool import Batch, Pool

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

# Float32 throughout (`deterministic`): only the order of sums may differ between the two paths.
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


def norm_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 5), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 10)
    )


def dropout_net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 30), nn.Dropout(0.5), nn.Linear(30, 10))


NETWORKS = {"cnn": lambda: cifar_cnn((3, 32, 32), 10), "norm": norm_net, "dropout": dropout_net}


def both(name: str) -> tuple[Compute, Compute, list[Batch]]:
    torch.manual_seed(0)
    stream = np.random.default_rng(0)
    x = stream.integers(0, 256, (500, 3, 32, 32), dtype=np.uint8)
    pool = Pool(Samples(x, stream.integers(0, 10, 500)), (120.0,) * 3, (60.0,) * 3, "cuda")
    module = NETWORKS[name]()
    plain = Compute(copy.deepcopy(module), cross_entropy, pool)
    fast = GraphCompute(module, cross_entropy, pool, deterministic=True)
    batches = [Batch(torch.from_numpy(stream.permutation(500)[:20]).cuda()) for _ in range(7)]
    return plain, fast, batches


@pytest.mark.parametrize("name", NETWORKS)
def test_graphs_compute_what_the_plain_path_computes(name: str) -> None:
    plain, fast, batches = both(name)
    model = plain.initial
    for turn in range(3):  # captured in the first turn, replayed afterwards
        some = batches[: 7 - 2 * turn]  # the number of receivers differs from turn to turn
        for a, b in zip(plain.score(model, some), fast.score(model, some), strict=True):
            torch.testing.assert_close(a.wait(), b.wait(), **CLOSE)
        expected = plain.train(model, batches[:3], 0.05, lambda: 7)
        found = fast.train(model, batches[:3], 0.05, lambda: 7)
        torch.testing.assert_close(found, expected, **CLOSE)
        assert not torch.equal(found, model)
        model = found


def test_a_model_that_is_not_finite_scores_infinity_on_both_lanes() -> None:
    _, fast, batches = both("cnn")
    model = fast.initial.clone()
    model[3] = torch.nan
    for losses in fast.score(model, batches):
        assert losses.wait().tolist() == [torch.inf] * 20


def test_answers_outlive_later_work() -> None:
    """Buffers are reused; what was handed out must not change with them."""
    _, fast, batches = both("cnn")
    first = [losses.wait() for losses in fast.score(fast.initial, batches)]
    trained = fast.train(fast.initial, batches[:1], 0.1, lambda: 0)
    kept = [t.clone() for t in first], trained.clone()
    for _ in range(20):
        other = fast.train(trained, batches[1:2], 0.1, lambda: 0)
        fast.score(other, batches)
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(first, kept[0], strict=True))
    assert torch.equal(trained, kept[1])
