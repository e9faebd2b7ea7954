"""A run that is stopped and taken up again ends as if nothing had happened, bit for bit."""

from pathlib import Path
from typing import Any

import pytest

from basil.errors import UserError
from basil.experiment import Hooks, Interrupted, Simulation, resume, set_up
from basil.recipe import parse
from basil.record.run_folder import CHECKPOINT

from ring_helpers import StopAfter, files_of_run

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "gaussian": {"attack": {"name": "gaussian"}},
    "stale keeps a state": {"attack": {"name": "stale", "start": 2}},
    "hidden looks at all": {"attack": {"name": "hidden", "start": 2}},
    "silence and deadlines": {"attack": {"name": "silent"}},
    "inverse needs the chosen model": {"attack": {"name": "inverse"}},
    "r-plain": {"scheme": {"name": "r-plain", "rounds": 6}},
    "scored at the turn": {"scheme": {"scoring": "turn", "rounds": 6}},
    "rings in parallel": {
        "ring": {"groups": 2, "group_rounds": 2},
        "scheme": {"name": "basil+", "rounds": 6},
        "attack": {"name": "inverse", "stages": ["aggregation"]},
    },
    "rings in parallel, dropout and return": {
        "ring": {
            "groups": 4,
            "fanout": 2,
            "events": [{"node": 2, "leaves": 2, "returns": 4, "stage": "aggregation"}],
        },
        "scheme": {"name": "basil+", "rounds": 6},
        "attack": {"name": "silent"},
    },
    "rings in parallel, scored at the turn": {
        "ring": {"groups": 2},
        "scheme": {"name": "r-plain+", "rounds": 6, "scoring": "turn"},
    },
    "dropout and return": {
        "ring": {"events": [{"node": 2, "leaves": 2, "returns": 4}, {"node": 5, "leaves": 3}]}
    },
}


def recipe(case: dict[str, Any]) -> Any:
    tree: dict[str, Any] = {
        "seed": 3,
        "ring": {"nodes": 8, "byzantine": 2},
        "scheme": {"rounds": 6},
        "learning": {"batch": 16, "rate": 0.1},
        "record": {"every": 2, "checkpoint": 3600},
    }
    for section, values in case.items():
        tree.setdefault(section, {}).update(values)
    return parse(tree)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_stopped_twice_and_resumed_equals_uninterrupted(
    tmp_path: Path, case: dict[str, Any]
) -> None:
    Simulation(set_up(recipe(case))).run(tmp_path / "whole")
    stopped = tmp_path / "stopped"
    with pytest.raises(Interrupted):
        Simulation(set_up(recipe(case))).run(stopped, Hooks(stop=StopAfter(11)))
    assert not (stopped / "summary.json").exists()
    # What a crash leaves behind the checkpoint must not be counted twice.
    with (stopped / "selections.csv").open("a") as file:
        file.write("9,9,9,")
    with pytest.raises(Interrupted):
        resume(stopped, hooks=Hooks(stop=StopAfter(13)))
    resume(stopped)
    assert files_of_run(stopped) == files_of_run(tmp_path / "whole")
    assert not (stopped / CHECKPOINT).exists()


@pytest.mark.parametrize("scheme", ["basil", "basil+"])
def test_every_point_of_a_lap_is_a_good_one_to_stop(tmp_path: Path, scheme: str) -> None:
    case = {
        "attack": {"name": "layer-sign-flip"},
        "ring": {"events": [{"node": 1, "leaves": 2, "returns": 3}], "groups": 2},
        "scheme": {"name": scheme, "rounds": 6},
    }
    Simulation(set_up(recipe(case))).run(tmp_path / "whole")
    for turns in range(6, 20):
        folder = tmp_path / str(turns)
        with pytest.raises(Interrupted):
            Simulation(set_up(recipe(case))).run(folder, Hooks(stop=StopAfter(turns)))
        resume(folder)
        assert files_of_run(folder) == files_of_run(tmp_path / "whole")


def test_a_checkpoint_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        Simulation(set_up(recipe({}))).run(folder, Hooks(stop=StopAfter(3)))
    file = folder / CHECKPOINT
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UserError, match="checkpoint"):
        resume(folder)
