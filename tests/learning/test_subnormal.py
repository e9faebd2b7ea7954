"""Subnormal numbers count as zero where models are computed with, and nowhere else."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import basil
from basil.learning.subnormal import no_subnormals

SMALL = 1e-20


def kept() -> bool:
    return bool(torch.tensor(SMALL).square().view(torch.int32))


def test_they_count_as_zero_inside_and_as_before_afterwards() -> None:
    assert kept()
    with no_subnormals():
        assert not kept()
        with no_subnormals():
            assert not kept()
        assert not kept()
        assert torch.tensor(2e-38) > 0  # a normal number stays
    assert kept()


def test_a_run_computes_without_them_and_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    found: list[bool] = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        found.append(kept())
        return cross_entropy(outputs, targets, reduction="none")

    small = {"ring": {"nodes": 3, "byzantine": 0, "connectivity": 2}, "scheme": {"rounds": 1}}
    basil.run(small, loss=loss, out=tmp_path / "run")
    assert not found[-1]  # (the first calls look the loss over, before the run)
    assert kept()
