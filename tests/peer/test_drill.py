"""Sixteen processes, five of them hostile, two killed and one of those returning."""

from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from safetensors.torch import load_file

from basil.experiment import Simulation, set_up
from basil.peer.run.merge import merge
from basil.recipe import parse

from nursery import Ring

N, ROUNDS = 16, 24
DRILL: dict[str, Any] = {
    "seed": 2,
    "ring": {"nodes": N, "byzantine": 5, "connectivity": 6, "dropouts": 2},
    "scheme": {"rounds": ROUNDS},
    "learning": {"model": "softmax", "batch": 32, "rate": 0.1},
    "attack": {"name": "gaussian"},
    "record": {"every": ROUNDS},
}
POINTS = 0.03


@pytest.mark.slow
def test_sixteen_nodes_with_five_byzantine_nodes_and_two_killed_learn_as_the_simulator_says(
    ring_of: Callable[..., Ring], tmp_path: Path
) -> None:
    nodes = set_up(parse(DRILL)).participants
    gone, returning = nodes.benign[2], nodes.benign[7]
    ring = ring_of(DRILL)
    for i in range(N):
        ring.start(i, *(["--attack", "gaussian"] * (i in nodes.byzantine)))
    witness = nodes.benign[0]
    ring.until_round(5, witness)
    ring.kill(gone)
    ring.kill(returning)
    left = {i: ring.round(i) + 1 for i in (gone, returning)}
    ring.until_round(10, witness)
    ring.start(returning)
    alive = [i for i in range(N) if i != gone]
    assert ring.wait(alive, seconds=120) == dict.fromkeys(alive, 0), ring.story([returning])

    run = merge(ring.folder, tmp_path / "real")
    mine = run.selections.round[run.selections.node == returning]
    back = int(min(mine[mine > left[returning]]))
    assert left[returning] < back < ROUNDS, mine
    events = [
        {"node": gone, "leaves": left[gone]},
        {"node": returning, "leaves": left[returning], "returns": back},
    ]
    same = parse({**DRILL, "ring": {**DRILL["ring"], "events": events}})
    experiment = set_up(same)
    Simulation(experiment).run(tmp_path / "simulated")
    models = load_file(tmp_path / "simulated/models.safetensors")
    benign = [i for i in alive if i not in nodes.byzantine]
    there = experiment.compute.test(
        [models[f"node-{i}"] for i in benign], experiment.test, len(experiment.test)
    )
    simulated = [accuracy for _, accuracy in there.wait()]
    here = [ring.summary(i)["accuracy"]["worst"] for i in benign]
    print(f"peers: worst {min(here):.3f}, mean {mean(here):.3f};", end=" ")
    print(f"simulator: worst {min(simulated):.3f}, mean {mean(simulated):.3f}")
    assert abs(min(here) - min(simulated)) <= POINTS
    assert abs(mean(here) - mean(simulated)) <= POINTS
