"""Small runs: the same bits again, also when stopped and resumed."""

import itertools
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from basil.experiment import Hooks, Interrupted, Simulation, resume, set_up
from basil.recipe import parse
from basil.recipe.read import change

TINY: dict[str, dict[str, Any]] = {
    "data": {"dataset": "synthetic", "samples": 200},
    "ring": {"nodes": 6, "byzantine": 1, "connectivity": 2},
    "graph": {"name": "complete"},
    "scheme": {"rounds": 4},
    "learning": {"model": "mlp", "hidden": 5, "batch": 8, "rate": 0.1},
    "record": {"every": 2, "checkpoint": 3600},
}


def must(condition: bool, sentence: str) -> None:
    """As `assert`, but also where Python runs with -O."""
    if not condition:
        raise AssertionError(sentence)


def check_runs(section: str, values: Mapping[str, Any], **names: str) -> dict[str, Any]:
    """Run a small recipe with these values in a section, whole and in two parts; the summary.

    names: of other entries, such as attack="gaussian".
    """
    tree = deepcopy(TINY)
    settings = {f"{section}.{key}": value for key, value in values.items()}
    settings |= {f"{other}.name": name for other, name in names.items()}
    change(tree, settings)
    recipe = parse(tree)
    with TemporaryDirectory() as place:
        whole = Simulation(set_up(recipe)).run(Path(place, "whole"))
        turns = itertools.count()
        hooks = Hooks(stop=lambda: next(turns) > 8)
        parted: dict[str, Any]
        try:
            parted = Simulation(set_up(recipe)).run(Path(place, "parted"), hooks)
        except Interrupted:
            parted = resume(Path(place, "parted"))
    must(
        whole["model_sha256"] == parted["model_sha256"],
        "stopped and resumed, a run must end with the same models bit for bit: draw from the"
        " streams that are handed over, and keep what is remembered in the state",
    )
    return whole
