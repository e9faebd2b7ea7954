"""Score and train against plain PyTorch, and what must not matter to them."""

import copy
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from basil.data import Samples
from basil.errors import UserError
from basil.learning.batches import draw_batches, draw_by_class
from basil.learning.compute import Compute
from basil.learning.models import cifar_cnn, cross_entropy, mlp
from basil.learning.pool import Batch, Pool


def pool(n: int = 60, shape: tuple[int, ...] = (3, 32, 32), classes: int = 10) -> Pool:
    stream = np.random.default_rng(0)
    x = stream.integers(0, 256, (n, *shape), dtype=np.uint8)
    y = stream.integers(0, classes, n)
    return Pool(Samples(x, y), (120.0,) * shape[0], (60.0,) * shape[0])


def batch(*indices: int) -> Batch:
    return Batch(np.array(indices))


NETWORKS = {
    "mlp": lambda: mlp((3, 32, 32), 10),
    "cnn": lambda: cifar_cnn((3, 32, 32), 10),
    "batch norm": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 5), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 10)
    ),
    "frozen layer": lambda: freeze_first(mlp((3, 32, 32), 10)),
}


def freeze_first(module: nn.Module) -> nn.Module:
    next(module.parameters()).requires_grad_(False)
    return module


@pytest.mark.parametrize("name", NETWORKS)
def test_against_plain_pytorch(name: str) -> None:
    """Two steps with torch.optim.SGD, then losses in evaluation mode."""
    torch.manual_seed(1)
    module = NETWORKS[name]()
    plain = copy.deepcopy(module)
    data = pool()
    compute = Compute(module, cross_entropy, data)
    batches = [batch(*range(20)), batch(*range(20, 40))]
    trained = compute.train(compute.initial, batches, 0.05, key=lambda: 0)

    optimiser = torch.optim.SGD([p for p in plain.parameters() if p.requires_grad], lr=0.05)
    plain.train()
    for part in batches:
        x, y = data.take(torch.from_numpy(part.indices))
        optimiser.zero_grad()
        nn.functional.cross_entropy(plain(x), y).backward()
        optimiser.step()
    assert not torch.equal(trained, compute.initial)
    torch.testing.assert_close(trained, compute.layout.flatten(plain))

    plain.eval()
    x, y = data.take(torch.arange(40, 60))
    with torch.no_grad():
        expected = nn.functional.cross_entropy(plain(x), y, reduction="none")
    found = compute.score(trained, [batch(*range(40, 60))])[0].wait()
    torch.testing.assert_close(found, expected)


def test_a_request_is_answered_alike_whoever_else_is_asking() -> None:
    compute = Compute(cifar_cnn((3, 32, 32), 10), cross_entropy, pool())
    model = compute.train(compute.initial, [batch(1, 2, 3)], 0.1, lambda: 0)
    parts = [batch(*range(i, i + 7)) for i in range(0, 49, 7)]
    together = [losses.wait() for losses in compute.score(model, parts)]
    compute.train(compute.initial, [batch(5)], 0.1, lambda: 0)  # whatever was done in between
    alone = [compute.score(model, [Batch(part.indices)])[0].wait() for part in parts]
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_training_leaves_its_input_alone() -> None:
    compute = Compute(mlp((3, 32, 32), 10), cross_entropy, pool())
    before = compute.initial.clone()
    first = compute.train(compute.initial, [batch(0, 1)], 0.1, lambda: 0)
    kept = first.clone()
    compute.train(first, [batch(2, 3)], 0.1, lambda: 0)
    assert torch.equal(compute.initial, before)
    assert torch.equal(first, kept)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_model_that_is_not_finite_scores_infinity(bad: float) -> None:
    """Even where the network's output does not show it: a dead ReLU hides a −inf."""
    compute = Compute(mlp((3, 32, 32), 10), cross_entropy, pool())
    model = compute.initial.clone()
    model[compute.layout.slots[1].start] = bad  # a bias of the first layer
    assert compute.score(model, [batch(0, 1, 2)])[0].wait().tolist() == [torch.inf] * 3


def test_dropout_draws_from_the_turns_own_stream() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(3072, 30), nn.Dropout(0.5), nn.Linear(30, 10))
    compute = Compute(module, cross_entropy, pool())
    once = compute.train(compute.initial, [batch(0, 1)], 0.1, key=lambda: 1)
    torch.manual_seed(99)
    again = compute.train(compute.initial, [batch(0, 1)], 0.1, key=lambda: 1)
    other = compute.train(compute.initial, [batch(0, 1)], 0.1, key=lambda: 2)
    assert torch.equal(once, again)
    assert not torch.equal(once, other)
    scores = [compute.score(once, [batch(3, 4)])[0].wait() for _ in range(2)]
    assert torch.equal(*scores)  # no dropout in evaluation


def test_a_loss_must_be_one_number_for_each_sample() -> None:
    with pytest.raises(UserError, match="reduction='none'"):
        Compute(mlp((3, 32, 32), 10), nn.functional.cross_entropy, pool())


def test_strides_of_one_channel_change_no_bit_of_a_convolution() -> None:
    """A data set's array and a copy of some of its rows differ in them: simulator and peer."""
    x = np.random.default_rng(0).integers(0, 256, (16, 8, 8), dtype=np.uint8)
    targets = np.arange(16) % 10
    network = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Flatten(), nn.Linear(256, 10))
    odd = np.lib.stride_tricks.as_strided(x, (16, 1, 8, 8), (64, 1, 8, 1))
    pools = [Pool(Samples(each, targets), (90.0,), (70.0,)) for each in (odd, x[:, None].copy())]
    computes = [Compute(copy.deepcopy(network), cross_entropy, samples) for samples in pools]
    assert torch.equal(*[c.train(c.initial, [batch(*range(16))], 0.1, int) for c in computes])


def test_a_network_for_other_samples_is_refused() -> None:
    with pytest.raises(UserError, match=r"\(3, 32, 32\)"):
        Compute(mlp((28, 28), 10), cross_entropy, pool())


def test_bytes_become_network_inputs_only_when_taken() -> None:
    data = pool(4, (1, 2, 2))
    assert data.x.dtype == torch.uint8
    x, _ = data.take(torch.tensor([2]))
    expected = (data.x[2].float() - 120) / 60
    torch.testing.assert_close(x[0], expected)


def test_batches_use_every_sample_before_any_again() -> None:
    local = np.arange(100, 110)
    draw = partial(draw_batches, local, np.random.default_rng(0))
    steps = draw(size=4, steps=5, epochs=0)
    drawn = np.concatenate([b.indices for b in steps]).tolist()
    assert [len(b) for b in steps] == [4] * 5
    assert sorted(drawn[:10]) == sorted(drawn[10:]) == local.tolist()
    epochs = draw(size=4, steps=1, epochs=2)
    assert [len(b) for b in epochs] == [4, 4, 2, 4, 4, 2]
    assert sorted(np.concatenate([b.indices for b in epochs[:3]]).tolist()) == local.tolist()
    assert [len(b) for b in draw(size=64, steps=2, epochs=0)] == [10, 10]  # all that it has


@given(st.lists(st.integers(-3, 9), min_size=1, max_size=60), st.integers(1, 70), st.integers(0))
def test_a_batch_by_class_has_as_many_of_each_as_there_are(
    labels: list[int], size: int, seed: int
) -> None:
    local = np.arange(1000, 1000 + len(labels))
    batch = draw_by_class(local, np.array(labels), np.random.default_rng(seed), size)
    drawn, strata = batch.indices, batch.strata
    assert strata is not None
    classes = [labels[i - 1000] for i in drawn]
    assert len(set(zip(strata, classes, strict=True))) == len(set(strata)) == len(set(classes))
    assert len(set(drawn.tolist())) == len(drawn) == min(size, len(labels))
    held = Counter(labels)
    taken = Counter(labels[i - 1000] for i in drawn)
    most = max(taken.values())
    assert all(taken[c] >= min(held[c], most - 1) for c in held)


def test_which_samples_a_batch_by_class_has_is_left_to_chance() -> None:
    """Nine of one class and three of another: each of the nine is drawn as often as another."""
    local, labels, stream = np.arange(12), np.repeat([0, 1], [9, 3]), np.random.default_rng(1)
    times = Counter(
        i for _ in range(3000) for i in draw_by_class(local, labels, stream, 6).indices.tolist()
    )
    assert all(times[i] == pytest.approx(1000, abs=150) for i in range(9))
    assert all(times[i] == 3000 for i in range(9, 12))
