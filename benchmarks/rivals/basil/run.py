"""Basil's simulator; and the bare work, which nobody can do with less: a loop of SGD steps."""

from importlib.metadata import version
from typing import Any

import torch
from rings import noise, seconds_a_turn
from torch import nn
from work import Moment, Work, given, network, now, say

from basil.experiment import Custom, Machine, set_up
from basil.recipe import parse


def bare(work: Work) -> Moment:
    """One network after the other, batches cut out of tensors: nobody sends anything."""
    nodes = []
    for node in range(work.nodes):
        module = network()
        nodes.append((module, torch.optim.SGD(module.parameters(), work.rate), *work.data(node)))
    laps = []
    for _ in range(work.rounds):
        for module, optimiser, x, y in nodes:
            for _ in range(work.steps):
                which = torch.randint(0, work.samples, (work.batch,))
                optimiser.zero_grad()
                nn.functional.cross_entropy(module(x[which]), y[which]).backward()
                optimiser.step()
        laps.append(now())
    return work.milliseconds(laps)


def simulated(work: Work, byzantine: int, **scheme: Any) -> Moment:
    recipe = parse(
        {
            "ring": {"nodes": work.nodes, "byzantine": byzantine, "connectivity": b + 1},
            "graph": {"name": "complete"} if scheme["name"] in ("g-plain", "bridge") else {},
            "scheme": {"rounds": work.rounds, **scheme},
            "learning": {
                "model": "mlp", "batch": work.batch, "local_steps": work.steps, "rate": work.rate,
            },
            "attack": {"name": "gaussian" if byzantine else "none"},
        }
    )  # fmt: skip
    data = noise(work.nodes * work.samples, (1, 28, 28))
    setup = set_up(recipe, Custom(dataset=data), Machine("cpu"))
    begin: list[Moment] = []
    _, turns = seconds_a_turn([setup], work.nodes - byzantine, lambda: begin.append(now()))
    (wall, cpu), (wall_0, cpu_0), steps = now(), begin[0], turns * work.steps
    return 1e3 * (wall - wall_0) / steps, 1e3 * (cpu - cpu_0) / steps


work = given()
b = work.byzantine
say(
    version("basil-fl"),
    "no server; rings and graphs; attacks and robust rules; virtual time; real machines",
    {
        "everybody averages with everybody": simulated(work, 0, name="g-plain", canonical=False),
        "ring without a defence": simulated(work, 0, name="r-plain", canonical=False),
        "bare PyTorch, nothing sent": bare(work),
    },
    {
        "trimmed mean, at each node": simulated(work, b, name="bridge", canonical=False),
        "Basil's ring, as published": simulated(work, b, name="basil", canonical=False),
        "Basil's ring, canonical models": simulated(work, b, name="basil"),
    },
)
