"""A turn of a ring that fine-tunes SmolLM2: a step plainly, and as one launch.

The text is this repository's own code: what it says does not change the time.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rings import finish, seconds_a_turn

import basil
from basil.experiment import Custom, Machine, Setup, set_up
from basil.learning.compute import Compute
from basil.learning.pool import Batch
from basil.recipe import load

REPEATS = 10
WAYS: dict[str, bool] = {"": False, "half precision, ": True}


def measure(device: str) -> dict[str, Any]:
    """Milliseconds of a step and of a ring's turn (scores on S batches, and a step); tokens/s.

    On a CPU a random, tiny model takes the place of SmolLM2, and nothing is launched.
    """
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text"
        text.write_text("\n".join(f.read_text() for f in Path(basil.__path__[0]).rglob("*.py")))
        changes: dict[str, Any] = {
            "data.path": str(text),
            "data.by": "block",
            "data.partition": "iid",
        }
        if device == "cpu":
            changes |= {"data.tokenizer": "bytes", "learning.checkpoint": "tiny"}
        for way, half in WAYS.items() if device == "cuda" else [("", False)]:
            setup = _ring(device, {**changes, "learning.half": half})
            size = setup.recipe.learning.batch
            if not found:
                found["bytes a turn"] = 4 * setup.compute.layout.size
                of = _ring(device, {**changes, "learning.half": half}).compute
                plain = Compute(of.network, of.loss, of.pool, canonical=True)
                found["plainly, step"] = _step(plain, size)
            found[f"{way}step"] = _step(setup.compute, size)
            seconds, _ = seconds_a_turn([setup], 48)
            found[f"{way}turn"] = 1e3 * seconds
            found[f"{way}tokens/s"] = size * setup.compute.pool.x.shape[1] / seconds
    return found


def _ring(device: str, changes: dict[str, Any]) -> Setup:
    recipe = load("llm", {**changes, "ring.byzantine": 0, "record.metrics": []})
    return set_up(recipe, Custom(), Machine(device))


def _step(compute: Compute, size: int) -> float:
    batches = [[Batch(np.arange(size * i, size * (i + 1)))] for i in range(4 + REPEATS)]
    for batch in batches[:4]:  # allocate, capture
        compute.train(compute.initial, batch, 1e-3, lambda: 0)
    finish(compute.device)
    begin = time.perf_counter()
    for batch in batches[4:]:
        compute.train(compute.initial, batch, 1e-3, lambda: 0)
    finish(compute.device)
    return 1e3 * (time.perf_counter() - begin) / REPEATS
