"""What is compiled once serves every ring of a process."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from basil.data import Samples
from basil.learning.compute import Compute
from basil.learning.cuda.batched import Batched
from basil.learning.cuda.combination import one_by_one, together
from basil.learning.cuda.kernels import SHAPES, Kernels
from basil.learning.models import MODELS, cross_entropy
from basil.learning.pool import Pool
from basil.protocol.rules.trust import Verdict, _judged


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One for each function that is compiled: how often that was done."""
    found, compile_ = list[Any](), torch.compile

    def counting(function: Any, **options: Any) -> Any:
        found.append(CompileCounter())
        return compile_(function, **options | {"backend": found[-1]})

    monkeypatch.setattr(torch, "compile", counting)
    return found


def test_a_rule_is_compiled_for_few_shapes(counters: list[Any]) -> None:
    def scaled(x: Tensor, *, factor: float) -> Tensor:
        return x * factor

    pool = Pool(Samples(np.zeros((4, 5), np.float32), np.zeros(4, np.int64)), (0.0,), (1.0,))
    plain = Compute(MODELS["mlp"]((5,), 3), cross_entropy, pool)
    kernels = Kernels(plain.network, plain.layout, cross_entropy, pool, True)
    of_a_step = len(counters)
    for length in (*range(1, 7), 1, 2):
        twice = kernels.fused(partial(scaled, factor=2.0), length, scaled)
        assert twice(torch.ones(length)).tolist() == [2.0] * length
    assert [counter.frame_count for counter in counters[of_a_step:]] == [1] * SHAPES


@pytest.mark.parametrize("by_class", [False, True])
def test_trust_is_one_program_for_several_rings(counters: list[Any], by_class: bool) -> None:
    """And for each what it would be alone."""
    pool = Pool(Samples(np.zeros((4, 5), np.float32), np.zeros(4, np.int64)), (0.0,), (1.0,))
    plain = Compute(MODELS["mlp"]((5,), 3), cross_entropy, pool)
    kernels = Kernels(plain.network, plain.layout, cross_entropy, pool, True)
    of_a_step = len(counters)
    torch.manual_seed(0)
    judge = partial(_judged, z=2.0, ratio=2.0, memory=0.9, by_class=by_class)
    started, double = torch.randn(3, 7), torch.float64
    rows = [
        torch.rand(3, 4, 16),  # losses of four candidates; models are theirs and one's own
        torch.rand(3, 4, 3, dtype=double),
        torch.full((3,), 2.0, dtype=double),
        started[:, None] + 0.1 * torch.randn(3, 5, 7),
    ]
    strata = [torch.randint(0, 5, (3, 16))] if by_class else []
    for turn in ((), (started, torch.rand(3, 3))):
        args = [*rows, *strata, *turn]
        for function, rings in ((together, 3), (together, 2), (one_by_one, 1)):
            key, many = (function, len(turn)), function is together
            fused = kernels.fused(partial(function, judge), key, judge, rows=many)
            found = Verdict(*fused(*(arg[:rings].clone() for arg in args)))
            for ring in range(rings):
                expected = judge(*(arg[ring] for arg in args))
                for name, value in expected._asdict().items():
                    torch.testing.assert_close(getattr(found, name)[ring], value)
    assert [counter.frame_count for counter in counters[of_a_step:]] == [1] * 4


def test_other_samples_need_no_other_program(counters: list[Any]) -> None:
    first = None
    for samples in (60, 61, 75):  # as after data sharing: no two runs have as many
        draw = np.random.default_rng(samples)
        x, y = draw.normal(size=(samples, 5)).astype(np.float32), draw.integers(0, 3, samples)
        pool = Pool(Samples(x, y), (0.0,), (1.0,))
        plain = Compute(MODELS["mlp"]((5,), 3), cross_entropy, pool)
        kernels = Kernels(plain.network, plain.layout, cross_entropy, pool, True, first)
        first = first or kernels
        working = kernels.working_model(plain.initial)
        last = torch.arange(samples - 20, samples)
        kernels.step(working, last, torch.tensor(0.1), kernels.sizes)
        found = kernels.losses(working.vector, torch.arange(samples - 10, samples))
        outputs = torch.func.functional_call(
            plain.network,
            plain.layout.views(working.model.detach()),
            (pool.take(slice(-10, None))[0],),
        )
        expected = cross_entropy(outputs, pool.y[-10:])
        torch.testing.assert_close(found, expected)
    assert [counter.frame_count for counter in counters] == [1, 1]


@pytest.mark.parametrize("model", ["mlp", "cifar-cnn"])
def test_a_step_of_several_rings_is_two_programs(counters: list[Any], model: str) -> None:
    """However many rings step at once; and each as it would alone."""
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    shape = (3, 32, 32)
    x, y = draw.normal(size=(30, *shape)).astype(np.float32), draw.integers(0, 3, 30)
    pool = Pool(Samples(x, y), (0.0,) * 3, (1.0,) * 3)
    plain = Compute(MODELS[model](shape, 3), cross_entropy, pool)
    batched = Batched(Kernels(plain.network, plain.layout, cross_entropy, pool, True))
    for rings in (2, 3, 4, 6, 8):
        vectors = plain.initial + 0.01 * torch.randn(rings, len(plain.initial))
        samples, rates = torch.randint(0, 30, (rings, 5)), torch.rand(rings)
        found = batched.step(vectors, samples, rates, torch.zeros(rings, 0))
        assert not found.requires_grad
        for ring in range(rings):
            x_0, y_0 = pool.take(samples[ring])
            leaf = vectors[ring].clone().requires_grad_()
            outputs = torch.func.functional_call(plain.network, plain.layout.views(leaf), (x_0,))
            [gradient] = torch.autograd.grad(cross_entropy(outputs, y_0).mean(), leaf)
            torch.testing.assert_close(found[ring], vectors[ring] - rates[ring] * gradient)
    used = [counter.frame_count for counter in counters if counter.frame_count]
    assert used == [1, 1]
