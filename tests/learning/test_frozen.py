"""What travels is what is trained: frozen parts, half precision, adapters."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from basil.data import Samples
from basil.learning.compute import Compute
from basil.learning.cuda import GraphCompute
from basil.learning.layout import layout_of
from basil.learning.models import cross_entropy
from basil.learning.pool import Batch, Pool
from basil.learning.symmetry import Canonical, find

PATHS = [Compute, GraphCompute]


def pool() -> Pool:
    stream = np.random.default_rng(0)
    x = stream.normal(size=(60, 6)).astype(np.float32)
    return Pool(Samples(x, stream.integers(0, 4, 60)), (0.0,), (1.0,))


def batch(start: int, stop: int) -> Batch:
    return Batch(np.arange(start, stop))


def backbone() -> nn.Module:
    """A frozen body with a BatchNorm, and a head that is trained."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU())
    body.requires_grad_(False)
    return nn.Sequential(body, nn.Linear(8, 4))


class Adapted(nn.Module):
    """A frozen linear map with an adapter beside it, under the names that PEFT gives them."""

    def __init__(self, fan_in: int, fan_out: int, rank: int = 2) -> None:
        super().__init__()
        self.base = nn.Linear(fan_in, fan_out).requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(fan_in, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, fan_out, bias=False)})

    def forward(self, x: Tensor) -> Tensor:
        low: Tensor = self.lora_B["default"](self.lora_A["default"](x))
        return low + self.base(x)


class Branching(nn.Module):
    """An adapter in a network that cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = Adapted(6, 8), Adapted(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.one(x)
        return self.two(hidden.relu() if x.sum() > -1e9 else hidden)


def test_only_what_is_trained_is_in_the_vector() -> None:
    layout = layout_of(backbone())
    assert [slot.name for slot in layout.slots] == ["1.weight", "1.bias"]
    assert layout.size == 8 * 4 + 4
    moving = layout_of(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False)))
    assert moving.size == 6 + 4  # statistics that training changes travel


def test_another_frozen_part_is_another_layout() -> None:
    one, other = backbone(), backbone()
    assert layout_of(one).fingerprint == layout_of(other).fingerprint
    with torch.no_grad():
        other[0][0].weight[0, 0] += 1e-3  # type: ignore[index]
    assert layout_of(one).fingerprint != layout_of(other).fingerprint


@pytest.mark.parametrize("path", PATHS)
def test_a_frozen_backbone_against_plain_pytorch(path: type[Compute]) -> None:
    """Its BatchNorm keeps the statistics it came with, in training as in evaluation."""
    network, data = backbone(), pool()
    plain = copy.deepcopy(network)
    compute = path(network, cross_entropy, data)
    trained = compute.train(compute.initial, [batch(0, 20), batch(20, 40)], 0.1, lambda: 0)

    optimiser = torch.optim.SGD(plain[1].parameters(), lr=0.1)  # type: ignore[index]
    plain.eval()
    for part in (slice(0, 20), slice(20, 40)):
        x, y = data.take(part)
        optimiser.zero_grad()
        nn.functional.cross_entropy(plain(x), y).backward()
        optimiser.step()
    torch.testing.assert_close(trained, compute.layout.flatten(plain))
    x, y = data.take(slice(40, 60))
    with torch.no_grad():
        expected = cross_entropy(plain(x), y)
    torch.testing.assert_close(compute.score(trained, [batch(40, 60)])[0].wait(), expected)


@pytest.mark.parametrize("path", PATHS)
def test_half_precision_in_the_network_and_float32_in_the_vector(path: type[Compute]) -> None:
    """Steps too small for bfloat16 add up in the vector, as in training with mixed precision."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(6, 4).bfloat16()

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.linear(x.bfloat16())
            return outputs

    compute = path(Mixed(), cross_entropy, pool())
    assert compute.initial.dtype == torch.float32
    steps = [batch(0, 20)] * 3
    trained = compute.train(compute.initial, steps, 1e-4, lambda: 0)
    model = compute.initial
    for step in steps:  # one at a time: the vector loses nothing in between
        model = compute.train(model, [step], 1e-4, lambda: 0)
    assert torch.equal(trained, model)
    moved = (trained - compute.initial).abs()
    assert moved.max() > 0
    assert not torch.equal(trained, trained.bfloat16().float())
    losses = compute.score(trained, [batch(20, 40)])[0].wait()
    assert losses.dtype == torch.float32


def rescaled(model: Tensor, change: Callable[[Tensor], None]) -> Tensor:
    lie = model.clone()
    change(lie)
    return lie


def test_adapters_are_canonical_where_the_rest_cannot_be_traced() -> None:
    network, data = Branching(), pool()
    layout = layout_of(network)
    symmetries = find(network, layout, data.take(slice(0, 2))[0])
    assert symmetries.warning is None  # nothing else is trained
    assert [pair.size for pair in symmetries.pairs] == [2, 2]
    compute = Compute(network, cross_entropy, data, canonical=True)
    honest = compute.train(compute.initial, [batch(0, 20)], 0.5, lambda: 0)
    canonical = Canonical(symmetries, compute.initial)
    draw = torch.Generator().manual_seed(1)

    def lie(vector: Tensor) -> None:
        for pair in symmetries.pairs:
            basis = torch.randn(2, 2, generator=draw, dtype=torch.float64)
            pair.transform(vector, basis, basis.inverse())

    changed = rescaled(honest, lie)
    assert (changed - honest).abs().max() > 0.1
    before, after = (compute.score(m, [batch(20, 60)])[0].wait() for m in (honest, changed))
    torch.testing.assert_close(before, after, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(canonical(changed), canonical(honest), rtol=2e-3, atol=2e-3)


def test_a_frozen_bias_lets_no_factor_pass() -> None:
    """Its unit cannot be scaled: the bias would have to follow."""
    network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    free = find(network, layout_of(network), torch.zeros(2, 6))
    network[0].bias.requires_grad_(False)
    assert [units.name for units in free.scaled] == ["0"]
    assert find(network, layout_of(network), torch.zeros(2, 6)).scaled == ()


def test_what_is_not_trained_is_worth_no_warning() -> None:
    """A frozen LSTM before a head, and a reshaping of the output."""

    class Head(nn.Module):
        def __init__(self, frozen: bool) -> None:
            super().__init__()
            self.body, self.head = nn.LSTM(6, 8), nn.Linear(8, 1)
            self.body.requires_grad_(not frozen)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.head(self.body(x)[0])
            return scores.flatten(0)

    for frozen in (True, False):
        network = Head(frozen)
        warning = find(network, layout_of(network), torch.zeros(2, 6)).warning
        assert (warning is None) == frozen, warning
