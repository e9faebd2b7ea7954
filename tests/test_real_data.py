"""What the paper shows, in small, on the real MNIST (skipped where it is absent)."""

from pathlib import Path
from typing import Any

import pytest

from basil import data
from basil.experiment import Simulation, set_up
from basil.recipe import load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not data.present("mnist"), reason="MNIST is not here: basil data get mnist"),
]


def run(folder: Path, *changes: str) -> dict[str, Any]:
    short = ["scheme.rounds=20", "record.every=20", "record.test_samples=2000"]
    return Simulation(set_up(load("mnist", [*short, *changes]))).run(folder)


@pytest.mark.parametrize("attack", ["gaussian", "layer-sign-flip"])
def test_basil_learns_where_the_plain_ring_collapses(tmp_path: Path, attack: str) -> None:
    basil = run(tmp_path / "basil", f"attack.name={attack}")
    plain = run(tmp_path / "plain", f"attack.name={attack}", "scheme.name=r-plain")
    assert basil["accuracy"]["worst"] > 0.8
    assert plain["accuracy"]["worst"] < 0.3


def test_two_predecessors_are_too_few_and_ten_are_enough(tmp_path: Path) -> None:
    """Fig. 7(c) at N = 100, b = 33, with an attack that hurts whoever trusts it."""
    two = run(tmp_path / "two", "ring.connectivity=2")
    ten = run(tmp_path / "ten", "ring.connectivity=10")
    assert two["accuracy"]["worst"] < 0.3
    assert ten["accuracy"]["worst"] > 0.8
    assert two["selection"]["byzantine"] > 0.05
    assert ten["selection"]["byzantine"] == 0
