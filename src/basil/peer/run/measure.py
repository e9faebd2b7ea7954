"""How long a turn takes on this machine: what it tells the others before the first one."""

import time
from pathlib import Path

import numpy as np

from basil.experiment import Setup
from basil.experiment.machine import median_seconds
from basil.learning.pool import Batch
from basil.record import checkpoint

TIMES = 3


def seconds_of_a_turn(setup: Setup, folder: Path) -> float:
    """Receive a model, evaluate it, train, and force a checkpoint of S + 2 models to the disk.

    The hop is what the recipe says of links (time.megabits and time.latency): what a link to a
    peer that is not here yet can do is not known before it has been used.
    """
    compute, recipe = setup.compute, setup.recipe
    x0, batch = compute.initial, Batch(np.arange(min(recipe.learning.batch, len(compute.pool))))
    forward = median_seconds(lambda: compute.score(x0, [batch])[0].wait(), compute.device, TIMES)
    step = median_seconds(lambda: compute.train(x0, [batch], 0.0, lambda: 0), compute.device, TIMES)
    begin = time.perf_counter()
    probe = folder / "probe.safetensors"
    models = [x0.clone() for _ in range(recipe.connectivity + 2)]
    checkpoint.save(probe, models, durable=True)
    disk = time.perf_counter() - begin
    probe.unlink()
    hop = setup.timing.link(4 * compute.layout.size)
    return hop + forward + setup.node_data.steps_in_a_turn() * step + disk
