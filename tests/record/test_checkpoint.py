"""A damaged checkpoint is never taken for a sound one: it is said, and the one before is read."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from basil.errors import UserError
from basil.experiment import Hooks, Interrupted, Machine, Setup, Simulation, set_up
from basil.protocol.requests import Rejoin
from basil.recipe import parse
from basil.record import checkpoint
from basil.record.run_folder import CHECKPOINT, CHECKPOINT_BEFORE, JOINS, METRICS, SELECTIONS

from ring_helpers import StopAfter, files_of_run

SHARED = torch.arange(6, dtype=torch.float32).reshape(2, 3)
TREE = {
    "models": [SHARED, SHARED, torch.tensor([1.5, -2.0], dtype=torch.bfloat16)],
    "count": torch.tensor(7),
    "none": torch.zeros(0),
    "note": Rejoin(),
    "round": 3,
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (isinstance(one, Rejoin) or one == other)


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    checkpoint.save(path, TREE)
    found = checkpoint.load(path)
    assert same(found, TREE)
    assert found["models"][0] is found["models"][1]


def test_no_flipped_bit_gives_another_checkpoint(tmp_path: Path) -> None:
    """Of header and body: it is found, or is of no account."""
    path = tmp_path / "a.safetensors"
    checkpoint.save(path, TREE)
    whole, refused = path.read_bytes(), 0
    body = 8 * (8 + int.from_bytes(whole[:8], "little"))
    tried = range(0, 8 * len(whole), 7)  # in every byte but one of eight; all of them take long
    for bit in tried:
        path.write_bytes(whole)
        flip(path, bit)
        try:
            assert same(checkpoint.load(path), TREE), bit
            assert bit < body, "a bit of a tensor's went unnoticed"
        except UserError:
            refused += 1
    assert refused > 0.9 * len(tried)


def test_a_checkpoint_from_before_there_were_digests_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"0": SHARED}, path, {"tree": json.dumps({"round": 3, "model": "tensor:0"})})
    assert same(checkpoint.load(path), {"round": 3, "model": SHARED})


@pytest.mark.parametrize("tree", ["{", '["tensor:1"]'])
def test_one_of_those_that_is_damaged_is_said(tmp_path: Path, tree: str) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"0": SHARED}, path, {"tree": tree})
    with pytest.raises(UserError, match="is not a checkpoint that can be read"):
        checkpoint.load(path)


# -- of a run ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def setup() -> Setup:
    tree = {
        "seed": 3,
        "ring": {"nodes": 8, "byzantine": 0, "groups": 2, "connectivity": 2},
        "scheme": {"name": "basil+", "rounds": 3},
        "learning": {"model": "softmax", "batch": 16, "rate": 0.1},
        "record": {"every": 1, "checkpoint": 0.0},
    }
    return set_up(parse(tree), machine=Machine("cpu"))


@pytest.fixture
def stopped(tmp_path: Path, setup: Setup) -> Path:
    """A run that has chosen between groups, with a checkpoint and the one before it."""
    with pytest.raises(Interrupted):
        Simulation(setup).run(tmp_path / "run", Hooks(stop=StopAfter(20)))
    assert (tmp_path / "run" / JOINS).exists()
    return tmp_path / "run"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, setup: Setup) -> tuple[Any, ...]:
    folder = tmp_path_factory.mktemp("whole")
    Simulation(setup).run(folder)
    assert not (folder / CHECKPOINT_BEFORE).exists()
    return files_of_run(folder)


@pytest.mark.parametrize("seed", range(3))
def test_after_a_flipped_bit_a_run_goes_on_from_the_checkpoint_before(
    stopped: Path, setup: Setup, expected: tuple[Any, ...], seed: int
) -> None:
    path = stopped / CHECKPOINT
    size, draw = path.stat().st_size, random.Random(seed)
    flip(path, draw.randrange(8 * (size - 1000), 8 * size))  # of a model
    with pytest.warns(UserWarning, match="its digest is another.*goes on from the one before"):
        Simulation(setup).run(stopped, resume=True)
    assert files_of_run(stopped) == expected
    assert not list(stopped.glob("checkpoint*"))


def test_a_damaged_checkpoint_does_not_replace_the_one_before(stopped: Path, setup: Setup) -> None:
    flip(stopped / CHECKPOINT, -80)
    for _ in range(2):
        with pytest.raises(Interrupted), pytest.warns(UserWarning, match="before"):
            Simulation(setup).run(stopped, Hooks(stop=lambda: True), resume=True)
        flip(stopped / CHECKPOINT, -80)
    checkpoint.load(stopped / CHECKPOINT_BEFORE)


def test_where_both_are_damaged_it_is_said(stopped: Path, setup: Setup) -> None:
    before = {path.name: path.read_bytes() for path in stopped.iterdir()}
    for name in (CHECKPOINT, CHECKPOINT_BEFORE):
        (stopped / name).write_bytes(before[name][:-1])
    with pytest.raises(UserError, match=f"{CHECKPOINT} is not a checkpoint that can be read"):
        Simulation(setup).run(stopped, resume=True)
    assert (stopped / METRICS).read_bytes() == before[METRICS]


@pytest.mark.parametrize("name", [METRICS, SELECTIONS, JOINS])
@pytest.mark.parametrize("left", [None, 0.5])
def test_a_file_that_is_gone_or_cut_off_is_said_and_the_others_are_left_as_they_are(
    stopped: Path, setup: Setup, name: str, left: float | None
) -> None:
    path = stopped / name
    content = path.read_bytes()
    if left is None:
        path.unlink()
    else:
        path.write_bytes(content[: int(left * len(content))])
    before = {path.name: path.read_bytes() for path in stopped.iterdir()}
    with pytest.raises(UserError, match=f"run cannot go on: its {name} is"):
        Simulation(setup).run(stopped, resume=True)
    after = {path.name: path.read_bytes() for path in stopped.iterdir()}
    assert after == before
