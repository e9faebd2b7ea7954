"""Optimisers of flat vectors against torch.optim, and what a node keeps of their state."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import basil
from basil.data import Samples
from basil.errors import UserError
from basil.learning.compute import Compute
from basil.learning.cuda import GraphCompute
from basil.learning.models import cross_entropy
from basil.learning.optimizers import OPTIMIZERS, Optimizer
from basil.learning.pool import Batch, Pool
from ctrl_c import CtrlC

Plain = Callable[[Any], torch.optim.Optimizer]
CASES: dict[str, tuple[Optimizer, Plain]] = {
    "momentum": (
        Optimizer("sgd", (("momentum", 0.9),), "kept"),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    ),
    "weight decay": (
        Optimizer("sgd", (("momentum", 0.5), ("weight_decay", 0.1)), "kept"),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.5, weight_decay=0.1),
    ),
    "adamw": (
        Optimizer("adamw", (("beta2", 0.99),), "kept"),
        lambda p: torch.optim.AdamW(p, lr=0.05, betas=(0.9, 0.99)),
    ),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    first = nn.Linear(6, 8, bias=False)  # a bias would have no gradient but rounding
    return nn.Sequential(first, nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))


def pool() -> Pool:
    stream = np.random.default_rng(0)
    x = stream.normal(size=(60, 6)).astype(np.float32)
    return Pool(Samples(x, stream.integers(0, 4, 60)), (0.0,), (1.0,))


PARTS = [slice(0, 20), slice(20, 40), slice(40, 60)]
BATCHES = [Batch(np.arange(part.start, part.stop)) for part in PARTS]


@pytest.mark.parametrize("path", [Compute, GraphCompute])
@pytest.mark.parametrize("case", CASES)
def test_against_torch_over_two_turns(case: str, path: type[Compute]) -> None:
    """State that is kept goes on where it was; running statistics do not decay."""
    optimizer, plain = CASES[case]
    data, module = pool(), network()
    compute = path(network(), cross_entropy, data, optimizer=optimizer)
    memory: dict[str, Any] = {}
    model = compute.train(compute.initial, BATCHES[:2], 0.05, lambda: 0, memory)
    model = compute.train(model, BATCHES[2:], 0.05, lambda: 0, memory)

    steps = plain(module.parameters())
    for part in PARTS:
        x, y = data.take(part)
        steps.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        steps.step()
    torch.testing.assert_close(model, compute.layout.flatten(module))


def test_a_gradient_is_clipped_to_a_norm() -> None:
    optimizer = Optimizer("sgd", (("clip", 0.01),))
    compute = Compute(nn.Linear(6, 4), cross_entropy, pool(), optimizer=optimizer)
    model = compute.train(compute.initial, BATCHES[:1], 1.0, lambda: 0)
    assert float((model - compute.initial).norm()) == pytest.approx(0.01, rel=1e-4)


@pytest.mark.parametrize(
    ("state", "kept"), [("none", set()), ("kept", {"momentum", "second", "steps"})]
)
def test_what_a_node_keeps_from_turn_to_turn(state: str, kept: set[str]) -> None:
    optimizer = Optimizer("adamw", (), state)
    compute = Compute(network(), cross_entropy, pool(), optimizer=optimizer)
    memory: dict[str, Any] = {"scheme": 7}
    compute.train(compute.initial, BATCHES[:2], 0.05, lambda: 0, memory)
    first = dict(memory)
    kept = {f"optimizer.{name}" for name in kept}
    assert set(memory) == {"scheme"} | kept
    compute.train(compute.initial, BATCHES[:2], 0.05, lambda: 0, memory)
    for key in kept:  # replaced, not changed: a checkpoint may hold on to it
        assert first[key] is not memory[key]


def test_an_unknown_state_is_refused() -> None:
    with pytest.raises(UserError, match="optimizer_state = 'all': it is one of kept, none"):
        Optimizer("sgd", (), "all")


@pytest.mark.parametrize("scheme", ["basil", "g-plain"])
def test_a_run_that_was_interrupted_goes_on_with_its_state(tmp_path: Path, scheme: str) -> None:
    """The bits of a run in one go: momentum lies in the checkpoint."""
    recipe = {
        "ring": {"nodes": 4, "byzantine": 1},
        "scheme": {"name": scheme, "rounds": 6},
        "learning": {"optimizer": "adamw", "rate": 0.01, "batch": 16},
        "record": {"checkpoint": 0.0, "every": 2},
    }

    whole = basil.run(recipe, out=tmp_path / "whole")
    forgetful = basil.run(recipe, out=tmp_path / "none", set={"learning.optimizer_state": "none"})
    with pytest.raises(KeyboardInterrupt):
        basil.run(recipe, out=tmp_path / "cut", callbacks=[CtrlC(4)])
    resumed = basil.resume(tmp_path / "cut")
    assert resumed.summary["model_sha256"] == whole.summary["model_sha256"]
    assert forgetful.summary["model_sha256"] != whole.summary["model_sha256"]


def test_clipping_makes_long_gradients_shorter_and_no_short_one_longer() -> None:
    gradient = torch.tensor([3.0, 4.0])
    for clip, expected in ((10.0, [-3.0, -4.0]), (5.0, [-3.0, -4.0]), (1.0, [-0.6, -0.8])):
        stepped = OPTIMIZERS["sgd"](torch.zeros(2), gradient, 1.0, {}, clip=clip)
        torch.testing.assert_close(stepped, torch.tensor(expected))
