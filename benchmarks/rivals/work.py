"""The work that all are given, and how each says what it took; needs nothing but PyTorch.

A script is called as `python run.py '{"nodes": 20, …}'`, with this folder on PYTHONPATH, and ends
with one line of JSON.
"""

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Moment = tuple[float, float]  # of the clock on the wall, and of CPU


class Work:
    """So many nodes train the paper's MNIST network, each on its own samples of noise."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.nodes: int = said["nodes"]
        self.byzantine: int = said["byzantine"]  # of the nodes, in what is done under an attack
        self.batch: int = said["batch"]
        self.steps: int = said["steps"]  # of each node in a round
        self.rounds: int = said["rounds"]
        self.samples: int = said["samples"]  # of each node
        self.rate: float = said["rate"]
        torch.set_num_threads(said["threads"])

    def data(self, node: int) -> tuple[Tensor, Tensor]:
        draw = torch.Generator().manual_seed(node)
        x = torch.rand(self.samples, 1, 28, 28, generator=draw)
        return x, torch.randint(0, 10, (self.samples,), generator=draw)

    def milliseconds(self, laps: list[Moment], nodes: int | None = None) -> Moment:
        """For each local step, from the ends of the rounds; the first is for warming up."""
        steps = (len(laps) - 1) * (nodes or self.nodes) * self.steps
        (wall, cpu), (wall_0, cpu_0) = laps[-1], laps[0]
        return 1e3 * (wall - wall_0) / steps, 1e3 * (cpu - cpu_0) / steps


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(),
        nn.Linear(100, 10),
    )  # fmt: skip


def given() -> Work:
    return Work(json.loads(sys.argv[1]))


def now() -> Moment:
    """Seconds that have passed, and seconds of CPU: others on the machine stretch the first only.

    The CPU of this process and of all that it has started, in ticks of 10 ms.
    """
    spent, parent = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            number = int(path.parent.name)
            spent[number], parent[number] = int(fields[11]) + int(fields[12]), int(fields[1])
    mine, ours = {os.getpid()}, 0
    while mine:
        ours += sum(spent.get(number, 0) for number in mine)
        mine = {number for number, before in parent.items() if before in mine}
    return time.perf_counter(), ours / os.sysconf("SC_CLK_TCK")


def say(version: str, can: str, plain: dict[str, Moment], attacked: dict[str, Moment]) -> None:
    """Milliseconds for a local step of a benign node, by what was done, and what else there is."""
    print(
        json.dumps({"version": version, "can": can, "plain": plain, "attacked": attacked}),
        flush=True,
    )
