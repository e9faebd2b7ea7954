"""Real processes and the simulator: the same recipe, the same selections, the same bits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from basil.experiment import Simulation, set_up
from basil.peer.run.merge import merge
from basil.recipe import parse
from basil.record.read import read_run

from nursery import Ring

N = 8
SMALL: dict[str, Any] = {
    "seed": 4,
    "ring": {"nodes": N, "byzantine": 2, "connectivity": 3},
    "scheme": {"rounds": 4},
    "learning": {"model": "softmax", "batch": 16, "rate": 0.1},
    "record": {"every": 2, "metrics": ["perplexity", "macro-f1"]},
}
QUICK: dict[str, dict[str, Any]] = {"basil under attack": {"attack": {"name": "gaussian"}}}
SLOW: dict[str, dict[str, Any]] = {
    "basil": {},
    "basil+": {
        "ring": {"nodes": N, "byzantine": 1, "connectivity": 2, "groups": 2, "group_rounds": 2},
        "scheme": {"name": "basil+", "rounds": 3},
        "attack": {"name": "gaussian"},
    },
    "a rule with a memory": {
        "scheme": {"rounds": 4, "rule": "trust"},
        "attack": {"name": "drift"},
    },
    "only steps that help": {
        "scheme": {"rounds": 4, "descent": True, "canonical": False},
        "learning": {"model": "mlp", "batch": 16, "rate": 0.1},
        "attack": {"name": "rescale", "factor": 20.0},
    },
    "turns begin ahead": {
        "scheme": {"rounds": 4, "rule": "trust", "extrapolate": 2.0},
        "attack": {"name": "drift"},
    },
    "models are announced": {
        "scheme": {"rounds": 3, "sketch": 50},
        "attack": {"name": "gaussian"},
    },
    "a lie that is tried out": {"attack": {"name": "brink", "direction": "signs"}},
    "r-plain": {"scheme": {"name": "r-plain", "rounds": 4}},
    "ubar": {"scheme": {"name": "ubar", "rounds": 4}, "attack": {"name": "sign-flip"}},
    "sharing": {
        "data": {"partition": "sorted"},
        "sharing": {"alpha": 0.1, "batches": 3},
    },
    "judged by class": {
        "data": {"partition": "sorted"},
        "sharing": {"alpha": 0.1, "batches": 3},
        "scheme": {"rounds": 3, "rule": "trust", "by_class": True, "average": True},
        "attack": {"name": "sign-flip"},
    },
    "sharing in groups": {
        "data": {"partition": "sorted"},
        "sharing": {"alpha": 0.1, "batches": 2, "groups": 2, "dummies": "held-out"},
        "scheme": {"name": "g-plain", "rounds": 2},
        "graph": {"name": "ring-lattice"},
    },
}


@pytest.mark.parametrize(
    "case", [*QUICK, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_eight_processes_are_the_simulator_bit_for_bit(
    case: str, ring_of: Callable[..., Ring], tmp_path: Path
) -> None:
    tree = {**SMALL, **(QUICK | SLOW)[case]}
    recipe = parse(tree)
    simulated = set_up(recipe)
    summary = Simulation(simulated).run(tmp_path / "simulated")

    ring = ring_of(tree)
    byzantine = simulated.participants.byzantine
    for i in range(N):
        ring.start(
            i, "--twin", "--patience", "60", *(["--attack", recipe.attack.name] * (i in byzantine))
        )
    assert set(ring.wait().values()) == {0}, ring.story(range(N))

    merged = merge(ring.folder, tmp_path / "merged")
    there = load_file(tmp_path / "simulated/models.safetensors")
    here = load_file(tmp_path / "merged/models.safetensors")
    assert here.keys() == there.keys()
    assert all(torch.equal(here[name], there[name]) for name in there)
    chosen = (tmp_path / "simulated/selections.csv").read_text()
    assert sorted((tmp_path / "merged/selections.csv").read_text().splitlines()) == sorted(
        chosen.splitlines()
    )
    assert merged.summary is not None
    assert merged.summary["model_sha256"] == summary["model_sha256"]
    lines = read_run(tmp_path / "simulated").metrics
    for measured in ("accuracy", "loss", "perplexity", "macro-f1"):
        assert merged.summary[measured] == pytest.approx(summary[measured])
        for mine, theirs in zip(merged.metrics, lines, strict=True):
            assert mine[measured] == pytest.approx(theirs[measured])
    assert merged.byzantine == byzantine


@pytest.mark.slow
def test_a_twin_that_is_restarted_goes_on_at_once(
    ring_of: Callable[..., Ring], tmp_path: Path
) -> None:
    """It knows whom it has heard: it does not wait, a patience of 60 s long, for what it had."""
    tree = {**SMALL, "ring": {"nodes": 4, "byzantine": 1, "connectivity": 2}}
    Simulation(set_up(parse({**tree, "scheme": {"rounds": 12}}))).run(tmp_path / "simulated")
    ring = ring_of({**tree, "scheme": {"rounds": 12}})
    ring.start_all("--twin", "--patience", "60")
    ring.until_round(3)
    ring.kill(1)
    ring.start(1, "--twin", "--patience", "60")
    assert set(ring.wait(seconds=50).values()) == {0}, ring.story(range(4))
    merge(ring.folder, tmp_path / "merged")
    there = load_file(tmp_path / "simulated/models.safetensors")
    here = load_file(tmp_path / "merged/models.safetensors")
    assert all(torch.equal(here[name], there[name]) for name in there)
