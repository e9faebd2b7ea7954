"""The paper's networks: sizes, shapes, initialisation."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from basil import rng
from basil.data import Samples
from basil.errors import UserError
from basil.learning.layout import layout_of
from basil.learning.models import MODELS, cifar_cnn, corner, initialise, mlp
from basil.learning.pool import Pool
from basil.learning.schedule import SCHEDULES


def test_number_of_parameters() -> None:
    # Tables I and II; App. H-D gives 117,706 for the CIFAR network.
    assert layout_of(mlp((1, 28, 28), 10)).size == 784 * 100 + 100 + 100 * 100 + 100 + 1000 + 10
    assert layout_of(cifar_cnn((3, 32, 32), 10)).size == 117_706


def test_cifar_network_is_the_one_of_table_2() -> None:
    x = torch.rand(2, 3, 32, 32)
    module = cifar_cnn((3, 32, 32), 20)
    sizes = []
    for part in module:  # type: ignore[attr-defined]
        x = part(x)
        sizes.append(tuple(x.shape[1:]))
    assert (64,) in sizes  # so fc1 is 64×384
    assert sizes[-1] == (20,)
    with pytest.raises(UserError, match="3×32×32"):
        cifar_cnn((1, 28, 28), 10)


def test_initialisation_of_appendix_h() -> None:
    module = cifar_cnn((3, 32, 32), 10)
    initialise(module, rng.torch_stream(0, "initial model"))
    for part in module.modules():
        if isinstance(part, nn.Conv2d):  # Glorot: U(±√(6 / (fan_in + fan_out)))
            field = math.prod(part.kernel_size)
            bound = math.sqrt(6 / (field * (part.in_channels + part.out_channels)))
        elif isinstance(part, nn.Linear):  # PyTorch's default: U(±1/√fan_in)
            bound = 1 / math.sqrt(part.in_features)
        else:
            continue
        assert part.weight.abs().max() <= bound
        assert part.weight.abs().max() > 0.9 * bound
        assert part.weight.mean().abs() < 0.1 * bound
        assert part.bias is not None
        assert torch.count_nonzero(part.bias) == 0


def test_initial_model_depends_on_the_seed_and_nothing_else() -> None:
    def start(seed: int) -> torch.Tensor:
        torch.manual_seed(int(torch.randint(1000, ())))  # the global state must not matter
        module = mlp((8,), 3)
        initialise(module, rng.torch_stream(seed, "initial model"))
        return layout_of(module).flatten(module)

    assert torch.equal(start(1), start(1))
    assert not torch.equal(start(1), start(2))


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name not in ("linear", "tiny-transformer", "causal-lm")]
)
def test_every_classifier_has_one_output_for_each_class(name: str) -> None:
    module = MODELS[name]((3, 32, 32), 7)
    assert module(torch.rand(2, 3, 32, 32)).shape == (2, 7)


def test_schedules() -> None:
    schedules: Mapping[str, Callable[..., float]] = SCHEDULES
    inverse, cosine, steps = (schedules[name] for name in ("inverse", "cosine", "steps"))
    assert inverse(1, 0.03, 500, decay=0.03) == pytest.approx(0.03 / 1.03)
    assert inverse(500, 0.03, 500, decay=0.03) == pytest.approx(0.03 / 16)
    assert cosine(1, 0.5, 11) == pytest.approx(0.5)
    assert cosine(6, 0.5, 11) == pytest.approx(0.25)
    assert cosine(11, 0.5, 11, floor=0.1) == pytest.approx(0.05)
    assert [steps(k, 1.0, 9, every=2, factor=0.5) for k in (1, 2, 3, 5)] == [1, 1, 0.5, 0.25]
    for name in SCHEDULES:
        assert all(0 <= SCHEDULES[name](k, 0.1, 20) <= 0.1 for k in range(1, 21))


def test_the_network_is_the_papers_though_cropped_and_with_its_biases_after_pooling() -> None:
    """Values and gradients of convolution, ReLU, max-pooling as Table II lists them.

    And the paper's own sees nothing beyond 23 × 23 pixels: its gradient there is exactly zero.
    """
    torch.manual_seed(0)
    ours = cifar_cnn((3, 32, 32), 10).double()  # so that only a real difference can show
    papers = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(3, 3),
        nn.Conv2d(16, 64, 4), nn.ReLU(), nn.MaxPool2d(4, 4), nn.Flatten(),
        nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10),
    ).double()  # fmt: skip
    with torch.no_grad():
        for mine, theirs in zip(ours.parameters(), papers.parameters(), strict=True):
            theirs.copy_(mine)
    x, y = torch.randn(8, 3, 32, 32, dtype=torch.float64, requires_grad=True), torch.arange(8)
    gradients = []
    for network in (ours, papers):
        loss = nn.functional.cross_entropy(network(x), y)
        gradients.append(torch.autograd.grad(loss, list(network.parameters())))
    close: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-14}
    torch.testing.assert_close(ours(x), papers(x), **close)
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, **close)
    (seen,) = torch.autograd.grad(papers(x).square().sum(), x)
    assert seen[..., 23:, :].abs().max() == 0
    assert seen[..., 23:].abs().max() == 0
    assert seen[..., 22, :23].abs().max() > 0
    assert seen[..., :23, 22].abs().max() > 0


def test_what_is_left_out_of_an_image_was_not_looked_at() -> None:
    """The stored corner gives the same outputs, to the last bit."""
    stream = np.random.default_rng(0)
    samples = Samples(stream.integers(0, 256, (20, 3, 32, 32), np.uint8), np.zeros(20, np.int64))
    network = cifar_cnn((3, 32, 32), 10)
    assert corner(network) == 23
    whole, part = (Pool(samples, (120.0,) * 3, (60.0,) * 3, "cpu", c) for c in (None, 23))
    assert part.x.shape == (20, 3, 23, 23)
    seen, kept = (network(pool.take(slice(0, 20))[0]) for pool in (whole, part))
    assert torch.equal(seen, kept)


def test_other_networks_look_at_all_of_it() -> None:
    assert corner(mlp((1, 28, 28), 10)) is None
    assert corner(nn.Linear(4, 2)) is None
