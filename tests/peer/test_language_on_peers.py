"""A language model on real peers: the frozen part lies on each disk, adapters alone travel."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import basil
from basil.experiment import set_up
from basil.peer.run.merge import merge
from basil.recipe import parse

from nursery import Ring

pytestmark = pytest.mark.slow


@pytest.fixture
def recipe(tmp_path: Path) -> dict[str, Any]:
    letters = np.random.default_rng(0).choice(list("to be or not "), 4000)
    (tmp_path / "text.txt").write_text("".join(letters))
    return {
        "data": {"dataset": "text", "path": str(tmp_path / "text.txt"), "length": 16},
        "ring": {"nodes": 8, "byzantine": 2, "connectivity": 3},
        "scheme": {"rounds": 3, "rule": "trust"},
        "learning": {
            "model": "causal-lm", "checkpoint": "tiny", "rank": 2, "batch": 8, "rate": 0.5,
            "optimizer": "adamw",
        },
        "attack": {"name": "rescale", "by": "basis", "factor": 3.0},
        "record": {"every": 3},
    }  # fmt: skip


def test_eight_peers_fine_tune_to_the_simulators_bits(
    recipe: dict[str, Any], tmp_path: Path, ring_of: Callable[..., Ring]
) -> None:
    model = basil.run(recipe, out=tmp_path / "run").summary["model_sha256"]
    byzantine = set_up(parse(recipe)).participants.byzantine
    ring = ring_of(recipe)
    for i in range(ring.nodes):
        lies = ["--attack", "rescale"] * (i in byzantine)
        ring.start(i, "--twin", "--patience", "60", *lies)
    assert set(ring.wait(seconds=300).values()) == {0}, ring.story(range(ring.nodes))
    merged = merge(ring.folder, tmp_path / "merged").summary
    assert merged is not None
    assert merged["model_sha256"] == model
