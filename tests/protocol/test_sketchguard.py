"""SketchGuard: sketches keep distances on average, decide by hand, and save bytes."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from basil.engine.durations import NOTE_BYTES
from basil.errors import UserError
from basil.experiment import Simulation, set_up
from basil.protocol import sketch
from basil.protocol.graph.sketchguard import near_or_nearest
from basil.protocol.sketch import Sketch, hashes, sketched
from basil.recipe import parse

CPU = torch.device("cpu")


def test_a_sketch_by_hand() -> None:
    """Places 0, 1, 0 and signs +, −, −: of (1, 2, 3) it is 1 − 3 and −2."""
    hashed = torch.tensor([0, 1, 0]), torch.tensor([1.0, -1.0, -1.0])
    assert sketched(torch.tensor([1.0, 2.0, 3.0]), hashed, 2).tolist() == [-2.0, -2.0]


def test_sketches_are_linear_and_keep_squared_lengths_on_average() -> None:
    x, y = torch.randn(2, 300, generator=torch.Generator().manual_seed(1))
    lengths = []
    for seed in range(200):
        hashed = hashes(seed, 300, 20, CPU)
        both = [sketched(z, hashed, 20) for z in (x, y, x - y)]
        assert torch.allclose(both[0] - both[1], both[2], atol=1e-4)
        lengths.append(float(both[2].square().sum()))
    assert sum(lengths) / 200 == pytest.approx(float((x - y).square().sum()), rel=0.1)


def test_who_is_near_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Own length 10, γ = ½ · e: in the last round 5 is near; 3 and 5 away are, 6 is not."""
    itself = torch.tensor([0, 1]), torch.ones(2)
    monkeypatch.setattr(sketch, "hashes", lambda *of: itself)
    own = torch.tensor([10.0, 0.0])
    models = torch.tensor([[10.0, 3.0], [10.0, 6.0], [5.0, 0.0], [torch.nan, 0.0]])
    apart, near = Sketch(2, 0.5001 * math.e, 1.0, rounds=4, seed=0).compared(own, models, 4)
    assert apart.tolist() == [3.0, 6.0, 5.0, math.inf]
    assert float(near) == pytest.approx(5.001)
    assert near_or_nearest(apart, near).tolist() == [True, False, True, False]
    assert near_or_nearest(apart, near / 5).tolist() == [True, False, False, False]
    assert not near_or_nearest(apart[3:], near).any()


def run(tmp_path: Path, scheme: str, attack: str, **options: Any) -> dict[str, Any]:
    graph = {} if scheme == "basil" else {"graph": {"name": "complete"}}
    recipe = parse(
        {
            "ring": {"nodes": 8, "byzantine": 2},
            **graph,
            "scheme": {"name": scheme, "rounds": 3, **options},
            "learning": {"model": "softmax", "batch": 16, "rate": 0.1},
            "attack": {"name": attack},
            "record": {"every": 3},
        }
    )
    return Simulation(set_up(recipe)).run(tmp_path / f"{scheme} {attack} {options}")


def test_rejected_models_cost_a_sketch(tmp_path: Path) -> None:
    """8 · 7 sketches of 50 numbers a round, and the models that are fetched, 650 numbers each."""
    found = run(tmp_path, "sketchguard", "gaussian", sketch=50)["messages"]
    sketches = 3 * 8 * 7
    fetched = (found["count"] - sketches) / 2  # each is asked for
    assert fetched == int(fetched)
    assert found["bytes"] == sketches * 4 * 50 + fetched * (NOTE_BYTES + 4 * 650)
    assert 6 * 3 * 5 - 8 <= fetched <= 3 * 8 * 7 - 6 * 3 * 2 + 8  # lies are hardly ever fetched
    whole = run(tmp_path, "balance", "gaussian")["messages"]
    assert found["bytes"] < 0.9 * whole["bytes"]


def test_on_a_ring_too(tmp_path: Path) -> None:
    """8 nodes, S = 3: a sketch to three successors a turn; all that is fetched comes from 6 of 8.

    Lies are not even scored; the next after a Byzantine node does not wait for its deadline.
    """
    found = run(tmp_path, "basil", "gaussian", sketch=50)
    sketches, models = 3 * 8 * 3, 3 * 6 * 3
    fetched = (found["messages"]["count"] - sketches) / 2
    assert found["messages"]["bytes"] == sketches * 4 * 50 + fetched * (NOTE_BYTES + 4 * 650)
    assert fetched <= models
    whole = run(tmp_path, "basil", "gaussian")
    assert whole["messages"]["bytes"] == sketches * 4 * 650
    assert found["selection"]["byzantine"] == whole["selection"]["byzantine"] == 0
    assert found["work"]["evaluations"] < whole["work"]["evaluations"]
    assert found["accuracy"] == whole["accuracy"]
    in_turn = run(tmp_path, "basil", "gaussian", scoring="turn")
    assert found["virtual_seconds"] < 1.3 * in_turn["virtual_seconds"]


def test_on_a_ring_nothing_is_near_without_a_radius(tmp_path: Path) -> None:
    alone = run(tmp_path, "basil", "none", sketch=50, gamma=0.0)
    assert alone["messages"]["bytes"] == 3 * 8 * 3 * 4 * 50
    with pytest.raises(UserError, match=r"scheme\.sketch = -1"):
        run(tmp_path, "basil", "none", sketch=-1)


@pytest.mark.parametrize("options", [{"sketch": 0}, {"gamma": -1.0}, {"alpha": 2.0}])
def test_wrong_options_are_said_before_the_run(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"scheme.{next(iter(options))} = "):
        run(tmp_path, "sketchguard", "gaussian", **options)
