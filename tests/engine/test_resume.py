"""A run that is stopped and taken up again ends as if nothing had happened, bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from basil.engine.simulate import Simulator
from basil.errors import UserError
from basil.experiment import Hooks, Interrupted, Simulation, resume, set_up
from basil.learning.pool import Batch
from basil.protocol.requests import Checkpoint, Protocol, Receive, Record, Score, Send
from basil.recipe import parse
from basil.record.run_folder import CHECKPOINT, CHECKPOINT_BEFORE

from ring_helpers import Quadratic, StopAfter, UnitCosts, Witness, files_of_run

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
    for file in (folder / CHECKPOINT, folder / CHECKPOINT_BEFORE):
        file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UserError, match="checkpoint"):
        resume(folder)


def test_what_waited_at_a_checkpoint_is_handed_out_in_the_order_in_which_it_came() -> None:
    """Node 0 is busy while node 2 sends and then node 1: it hears them so, stopped or not."""
    compute = Quadratic((1.0, 2.0, 3.0), 0.0).compute()
    x, batch = compute.initial, Batch(np.array([0]))

    def start(node: int, now: float, state: dict[str, Any] | None, rejoin: int | None) -> Protocol:
        if node > 0:
            if node == 1:
                yield Score(x, batch)
            yield Send((0,), 1, x)
            yield Checkpoint(1, dict)
            return
        if state is None:
            for _ in range(9):
                yield Score(x, batch)
            yield Record(1, x)
            yield Checkpoint(2, lambda: {"busy": False})
        for _ in range(2):
            heard.append((yield Receive(100.0)).sender)
        yield Receive(100.0)  # it is still there when the run is stopped

    class Stop(Witness):
        def instant(self, simulator: Simulator) -> bool:
            self.snapshot = simulator.snapshot()
            return False

    nodes, timing, stop = dict.fromkeys(range(3), False), UnitCosts(1.0, 1.0, 1.0), Stop()
    heard: list[int] = []
    assert Simulator(nodes, start, compute, timing, Witness()).run()
    assert heard == [2, 1]
    assert not Simulator(nodes, start, compute, timing, stop).run()
    heard.clear()
    again = Simulator(nodes, start, compute, timing, Witness())
    again.restore(stop.snapshot)
    assert again.run()
    assert heard == [2, 1]
