"""Basil+ with 400 nodes in 16 rings: memory, and time against the bare passes in it."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rings import finish, noise

from basil.engine.process import Work
from basil.experiment import Custom, Machine, Simulation, set_up
from basil.learning.models import MODELS, cross_entropy
from basil.protocol.requests import Record
from basil.recipe import parse

NODES, GROUPS, CONNECTIVITY, BATCH, EPOCHS = 400, 16, 6, 80, 3


class Ends:
    """An observer that notes when each global round is over, and what had been done by then."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.left = NODES
        self.times: list[float] = []
        self.work: list[Work] = []

    def record(self, node: int, record: Record, now: float) -> None:
        self.left -= record.last

    def instant(self, simulator: Any) -> bool:
        if self.left <= 0:
            finish(self.device)
            self.left += NODES
            self.times.append(time.perf_counter())
            self.work.append(simulator.total())
        return True


def measure(device: str, threads: int) -> dict[str, float]:
    """In a process of its own, so that its memory is its own."""
    here = Path(__file__)
    command = [sys.executable, str(here), device, str(threads)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def one_global_round(device: str) -> dict[str, float]:
    """The second of two: the first also warms up.  Nobody lies, so that all work is done."""
    recipe = parse(
        {
            "ring": {"nodes": NODES, "groups": GROUPS, "connectivity": CONNECTIVITY},
            "scheme": {"name": "basil+", "rounds": 2},
            "learning": {"model": "cifar-cnn", "batch": BATCH, "local_epochs": EPOCHS},
        }
    )
    data = noise(50_000, (3, 32, 32))
    experiment = set_up(recipe, Custom(dataset=data), Machine(device))
    ends = Ends(experiment.device)
    before = _bare_passes(device)
    Simulation(experiment).simulator(ends).run()
    seconds = ends.times[1] - ends.times[0]
    first, second = ends.work
    evaluations, steps = second.evaluations - first.evaluations, second.steps - first.steps
    # Before and after: what else the machine does should slow down both sides of the ratio.
    forward, step = (sum(pair) / 2 for pair in zip(before, _bare_passes(device), strict=True))
    bare = evaluations * forward + steps * step
    return {
        "seconds": seconds,
        "evaluations": evaluations,
        "steps": steps,
        "bare_seconds": bare,
        "ratio": seconds / bare,
    }


def _bare_passes(device: str) -> tuple[float, float]:
    """Seconds for one forward pass, and for one with its backward pass, in a plain loop.

    Of the paper's network on batches that are there already.  An epoch of 125 samples is a batch of
    80 and one of 45, so a step is the mean of both.
    """
    network = MODELS["cifar-cnn"]((3, 32, 32), 10).to(device)
    parameters = list(network.parameters())
    stream = np.random.default_rng(0)
    passes = {}
    for size in (BATCH, 50_000 // NODES - BATCH):
        x = torch.from_numpy(stream.normal(size=(size, 3, 32, 32)).astype(np.float32)).to(device)
        x = x.contiguous(memory_format=torch.channels_last)
        y = torch.from_numpy(stream.integers(0, 10, size)).to(device)

        def forward(x: torch.Tensor = x, y: torch.Tensor = y) -> None:
            with torch.no_grad():
                cross_entropy(network(x), y)

        def both(x: torch.Tensor = x, y: torch.Tensor = y) -> None:
            torch.autograd.grad(cross_entropy(network(x), y).mean(), parameters)

        passes[size] = [_median(work, torch.device(device)) for work in (forward, both)]
    (evaluate, large), (_, small) = passes.values()
    return evaluate, (large + small) / 2


def _median(work: Any, device: torch.device, times: int = 100) -> float:
    durations = []
    for _ in range(times + 20):
        begin = time.perf_counter()
        work()
        finish(device)
        durations.append(time.perf_counter() - begin)
    return float(np.median(durations[20:]))


def peak_memory() -> float:
    """GiB of this process at most, by the kernel's count (on a GPU: of the device)."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**30
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[2]))
    found = one_global_round(sys.argv[1])
    print(json.dumps({**found, "peak_GiB": peak_memory()}))
