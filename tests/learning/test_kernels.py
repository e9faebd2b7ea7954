"""What is compiled once serves every ring of a process."""

from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

from basil.data import Samples
from basil.learning.compute import Compute
from basil.learning.cuda.kernels import Kernels
from basil.learning.models import MODELS, cross_entropy
from basil.learning.pool import Pool


def test_other_samples_need_no_other_program(monkeypatch: pytest.MonkeyPatch) -> None:
    counters, compile_ = [], torch.compile

    def counting(function: Any, **options: Any) -> Any:
        counters.append(CompileCounter())
        return compile_(function, backend=counters[-1], **options)

    monkeypatch.setattr(torch, "compile", counting)
    first = None
    for samples in (60, 61, 75):  # as after data sharing: no two runs have as many
        draw = np.random.default_rng(samples)
        x, y = draw.normal(size=(samples, 5)).astype(np.float32), draw.integers(0, 3, samples)
        pool = Pool(Samples(x, y), (0.0,), (1.0,))
        plain = Compute(MODELS["mlp"]((5,), 3), cross_entropy, pool)
        kernels = Kernels(plain.network, plain.layout, cross_entropy, pool, True, first)
        first = first or kernels
        lane = kernels.lane(plain.initial)
        kernels.step(lane, torch.arange(samples - 20, samples), torch.tensor(0.1))
        found = kernels.losses(lane.vector, torch.arange(samples - 10, samples))
        outputs = torch.func.functional_call(
            plain.network,
            plain.layout.views(lane.model.detach()),
            (pool.take(slice(-10, None))[0],),
        )
        expected = cross_entropy(outputs, pool.y[-10:])
        torch.testing.assert_close(found, expected)
    assert [counter.frame_count for counter in counters] == [1, 1]
