"""All nodes of a graph train at the same moment: together, and one after the other."""

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from rings import finish, noise

from basil.learning.compute import Compute
from basil.learning.cuda import GraphCompute
from basil.learning.models import MODELS, cross_entropy
from basil.learning.pool import Batch, Pool


@dataclass
class Job:
    model: torch.Tensor
    batches: tuple[Batch, ...]
    rate: float = 0.01
    key: Any = field(default=lambda: 0)


NETWORKS = {
    "softmax, 8×8, batch 32": ("softmax", (1, 8, 8), 32),
    "mlp, 8×8, batch 32": ("mlp", (1, 8, 8), 32),
    "mlp, 28×28, batch 80": ("mlp", (1, 28, 28), 80),
    "cifar-cnn, batch 80": ("cifar-cnn", (3, 32, 32), 80),
}


def measure(device: str, nodes: int = 100) -> dict[str, dict[str, float]]:
    """Milliseconds for one step of every node, and the ratio."""
    found = {}
    for name, (network, shape, batch) in NETWORKS.items():
        data = noise(5000, shape)
        pool = Pool(data.train, data.mean, data.std, device)
        module = MODELS[network](shape, 10)
        compute: Compute = (
            GraphCompute(module, cross_entropy, pool)
            if device == "cuda"
            else Compute(module, cross_entropy, pool)
        )
        stream = np.random.default_rng(0)
        jobs = [
            Job(compute.initial.clone(), (Batch(stream.permutation(5000)[:batch]),))
            for _ in range(nodes)
        ]
        singly, joined = [], []
        for _ in range(3):  # by turns, so that both see one machine
            singly.append(_seconds([[job] for job in jobs], compute))
            joined.append(_seconds([jobs], compute))
        one, all_ = float(np.median(singly)), float(np.median(joined))
        found[name] = {"one by one": 1e3 * one, "together": 1e3 * all_, "gain": one / all_}
    return found


def _seconds(groups: list[list[Job]], compute: Compute) -> float:
    """For one step of every node, in these groups."""
    begin = 0.0
    for repeat in range(10):
        if repeat == 5:  # warmed up
            finish(compute.device)
            begin = time.perf_counter()
        for group in groups:
            compute.train_together(group)
    finish(compute.device)
    return (time.perf_counter() - begin) / 5
