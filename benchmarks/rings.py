"""Rings for measuring: the CIFAR network on samples of noise, so that no data set is needed."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import basil
from basil.experiment import Custom, Machine, Setup, Simulation, set_up
from basil.many.round_robin import Sharing, round_robin
from basil.protocol.requests import Record
from basil.recipe import parse


class Tally:
    """An observer that only counts benign turns."""

    def __init__(self, byzantine: frozenset[int]) -> None:
        self.byzantine = byzantine
        self.turns = 0

    def record(self, node: int, record: Record, time: float) -> None:
        self.turns += node not in self.byzantine

    def instant(self, simulator: Any) -> bool:
        return True


def noise(samples: int, shape: tuple[int, ...], classes: int = 10) -> basil.Dataset:
    stream = np.random.default_rng(0)
    x = stream.integers(0, 256, (samples, *shape), dtype=np.uint8)
    part = basil.Samples(x, stream.integers(0, classes, samples))
    names = tuple(f"class {i}" for i in range(classes))
    mean, std = (120.0,) * shape[0], (64.0,) * shape[0]
    return basil.Dataset("noise", part, part, classes, names, mean, std)


def ring(
    nodes: int = 100,
    byzantine: int = 33,
    connectivity: int = 10,
    batch: int = 80,
    rounds: int = 5,
    device: str = "cpu",
    attack: str = "gaussian",
    model: str = "cifar-cnn",
    seed: int = 0,
    data: basil.Dataset | None = None,
    compiled: bool = False,
    reuse: Setup | None = None,
    rule: str = "lowest-loss",
    canonical: bool = False,
    steps: int = 1,
) -> Setup:
    """The ring of the paper's experiments, unless said otherwise."""
    recipe = parse(
        {
            "seed": seed,
            "ring": {"nodes": nodes, "byzantine": byzantine, "connectivity": connectivity},
            "scheme": {"rounds": rounds, "rule": rule, "canonical": canonical},
            "learning": {"model": model, "batch": batch, "local_steps": steps},
            "attack": {"name": attack},
        }
    )
    shape = (3, 32, 32)
    data = data or noise(max(10_000, nodes * batch), shape)
    machine = Machine(device, compiled=compiled)
    return set_up(recipe, Custom(dataset=data), machine, reuse)


def seconds_a_turn(
    setups: Sequence[Setup], warm_up: int, ready: Callable[[], object] = lambda: None
) -> tuple[float, int]:
    """Run the rings by turns; wall-clock seconds for each benign turn once `warm_up` are done.

    `ready` is called before the clock starts.  It stops before the last turns, each of which is
    another kind of work, with ever fewer receivers.
    """
    device = setups[0].device
    tallies = [Tally(e.participants.byzantine) for e in setups]
    rings = [Simulation(e).simulator(t).instants() for e, t in zip(setups, tallies, strict=True)]
    begin, before = 0.0, 0
    last = sum(_turns(e) - 2 * e.recipe.connectivity for e in setups)
    compute = setups[0].compute
    sharing = Sharing.JOINED if compute.joins else Sharing.SIDE_BY_SIDE
    for _ in round_robin(rings, device, sharing=lambda: sharing, waited=lambda: compute.waited):
        if not begin and sum(t.turns for t in tallies) >= warm_up:
            finish(device)
            ready()
            begin, before = time.perf_counter(), sum(t.turns for t in tallies)
        if begin and sum(t.turns for t in tallies) >= last:
            break
    finish(device)
    turns = sum(t.turns for t in tallies) - before
    return (time.perf_counter() - begin) / turns, turns


def _turns(setup: Setup) -> int:
    benign = setup.recipe.ring.nodes - len(setup.participants.byzantine)
    return benign * setup.recipe.scheme.rounds


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
