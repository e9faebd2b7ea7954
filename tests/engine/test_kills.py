"""A run of several rings that is killed at any instant goes on as if it had not been: all files."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from basil.experiment import Hooks, Machine, Setup, Simulation, set_up
from basil.recipe import parse
from basil.record.run_folder import CHECKPOINT, LOCK

from ring_helpers import files_of_run

RINGS: dict[str, dict[str, Any]] = {
    "all are there": {"groups": 2, "connectivity": 2},
    "one returns and hears the multicast": {
        "groups": 2,
        "connectivity": 2,
        "events": [
            {"node": 2, "leaves": 2, "returns": 3},
            {"node": 5, "leaves": 2, "stage": "aggregation"},
        ],
    },
    "one returns while another waits for its second hop": {
        "groups": 4,
        "connectivity": 1,
        "fanout": 2,
        "events": [
            {"node": 6, "leaves": 2, "returns": 3},
            {"node": 4, "leaves": 2, "returns": 3, "stage": "multicast"},
        ],
    },
}


def setup_of(scheme: str, ring: dict[str, Any]) -> Setup:
    tree = {
        "seed": 57,
        "ring": {"nodes": 8, "byzantine": 1, **ring},
        "scheme": {"name": scheme, "rounds": 3},
        "attack": {"name": "inverse"},
        "learning": {"model": "softmax", "batch": 4, "rate": 0.1},
        "record": {"every": 3, "checkpoint": 0.0, "test_samples": 10},
    }
    return set_up(parse(tree), machine=Machine("cpu"))


@pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS.keys())
@pytest.mark.parametrize("scheme", ["basil+", "r-plain+"])
def test_a_kill_at_any_instant_leaves_no_trace_in_any_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, ring: dict[str, Any]
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # there is no power cut here
    setup, whole = setup_of(scheme, ring), tmp_path / "whole"
    killed: list[Path] = []

    def copy() -> bool:
        """What a kill leaves: the checkpoint of the instant before, and files that go beyond it."""
        if (whole / CHECKPOINT).exists():
            killed.append(tmp_path / str(len(killed)))
            shutil.copytree(whole, killed[-1], ignore=shutil.ignore_patterns(LOCK))
        return False

    Simulation(setup).run(whole, Hooks(stop=copy))
    expected = files_of_run(whole)
    names = sorted(path.name for path in whole.iterdir())
    rarely = replace(setup.recipe, record=replace(setup.recipe.record, checkpoint=3600.0))
    for folder in killed:
        Simulation(replace(setup, recipe=rarely)).run(folder, resume=True)
        found = files_of_run(folder)
        assert found == expected, f"killed after instant {folder.name}"
        assert sorted(path.name for path in folder.iterdir()) == names
    assert len(killed) > 12
