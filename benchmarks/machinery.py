"""What the generators, the scheduler and the clock cost: a turn in which nothing is computed."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from rings import Tally, noise, ring
from torch import Tensor

from basil.experiment import Simulation
from basil.learning.compute import Compute
from basil.learning.pool import Batch
from basil.learning.promises import Losses, Pick, Selection, decide
from basil.protocol import rules
from basil.protocol.rules import Candidates, Choice


class Nothing(Compute):
    """Answers at once, with what is already there."""

    def __init__(self, compute: Compute) -> None:
        self.initial = torch.zeros(1)
        self.layout = compute.layout
        self.device = compute.device
        self._losses = Losses(torch.zeros(1))

    def admit(self, model: Tensor) -> Tensor:
        return model

    def score(self, model: Tensor, batches: Sequence[Batch]) -> list[Losses]:
        return [self._losses] * len(batches)

    def select(
        self, models: Sequence[Tensor], losses: Sequence[Losses], own: Tensor, pick: Pick
    ) -> Selection:
        index = decide(torch.stack([promise.wait() for promise in losses]), pick, len(models))
        return Selection([*models, own], int(index))

    def train_together(self, jobs: Sequence[Any]) -> list[Tensor]:
        return [self.initial] * len(jobs)


def measure(rounds: int = 60, nodes: int = 100, connectivity: int = 10) -> dict[str, float]:
    """Microseconds a turn: the whole of it, and without the drawing of batches and the rule.

    The best of five runs: what else the machine does can only add to it.
    """
    runs = [_once(rounds, nodes, connectivity) for _ in range(5)]
    return {name: min(run[name] for run in runs) for name in runs[0]}


def _once(rounds: int, nodes: int, connectivity: int) -> dict[str, float]:
    found = {}
    for name in ("with draws and rule", "machinery alone"):
        setup = ring(
            nodes,
            0,
            connectivity,
            rounds=rounds,
            attack="none",
            model="softmax",
            data=noise(nodes * 80, (1, 2, 2)),
        )
        setup = replace(setup, compute=Nothing(setup.compute))
        if name == "machinery alone":  # past what a frozen dataclass lets one do
            vars(setup.node_data)["draw"] = lambda node, k: NO_BATCH
            vars(setup).update(rate=lambda k: 0.1, rule=_first)
        tally = Tally(setup.participants.byzantine)
        begin = time.perf_counter()
        Simulation(setup).simulator(tally).run()
        found[name] = (time.perf_counter() - begin) / tally.turns * 1e6
    return found


def _first(candidates: Candidates) -> rules.RuleGenerator:
    yield from ()
    nearest = Selection(candidates.models, 0)
    return Choice(nearest, nearest)


NO_BATCH = (Batch(np.zeros(1, np.int64)),)

if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, microseconds in measure().items():
        print(f"{name:<22} {microseconds:6.1f} µs a turn")
