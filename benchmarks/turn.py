"""One benign turn of the CIFAR ring: ours, the plain-PyTorch twin, and the FLOP floor."""

import copy
import time
from typing import Any

import numpy as np
import torch
from rings import finish, noise, ring, seconds_a_turn
from torch import nn

from basil.learning.models import cifar_cnn

# Multiply-adds count twice; conv1 on 30×30, conv2 on 7×7 places, then the three linear layers.
FORWARD_FLOPS = 2 * (30 * 30 * 16 * 27 + 7 * 7 * 64 * 256 + 64 * 384 + 384 * 192 + 192 * 10)


def twin_seconds(connectivity: int, batch: int, device: str, turns: int) -> float:
    """What one would write without thinking of speed: S modules, S forward passes, an optimiser."""
    x = torch.randint(0, 256, (5000, 3, 32, 32), dtype=torch.uint8, device=device)
    y = torch.randint(0, 10, (5000,), device=device)
    stored = [cifar_cnn((3, 32, 32), 10).to(device) for _ in range(connectivity)]
    loss = nn.CrossEntropyLoss()
    durations = []
    for turn in range(turns + 2):
        begin = time.perf_counter()
        which = torch.randint(0, 5000, (batch,), device=device)
        inputs, labels = (x[which].float() - 120) / 64, y[which]
        with torch.no_grad():
            losses = [loss(model(inputs), labels).item() for model in stored]
        model = copy.deepcopy(stored[int(np.argmin(losses))])
        optimiser = torch.optim.SGD(model.parameters(), lr=0.03)
        optimiser.zero_grad()
        loss(model(inputs), labels).backward()
        optimiser.step()
        stored = [*stored[1:], model]
        finish(torch.device(device))
        if turn >= 2:
            durations.append(time.perf_counter() - begin)
    return float(np.median(durations))


def matmul_rate(device: str) -> float:
    """FLOP/s of a large float32 matrix product."""
    n = 8192 if device == "cuda" else 2048
    a, b = torch.randn(n, n, device=device), torch.randn(n, n, device=device)
    a @ b
    finish(torch.device(device))
    begin = time.perf_counter()
    for _ in range(5):
        a @ b
    finish(torch.device(device))
    return 5 * 2 * n**3 / (time.perf_counter() - begin)


def measure(device: str, connectivity: int = 10, batch: int = 80) -> dict[str, Any]:
    """Seconds a turn and ratios; ours and the twin by turns, so that both see the same machine."""
    data = noise(10_000, (3, 32, 32))
    rounds, warm_up = (20, 400) if device == "cuda" else (2, 30)
    ours, twins = [], []
    for _ in range(3):
        twins.append(twin_seconds(connectivity, batch, device, 12))
        experiment = ring(
            connectivity=connectivity, batch=batch, rounds=rounds, device=device, data=data
        )
        ours.append(seconds_a_turn([experiment], warm_up)[0])
    mine, twin = float(np.median(ours)), float(np.median(twins))
    floor = FORWARD_FLOPS * batch * (connectivity + 3) / matmul_rate(device)
    return {
        "ours_ms": 1e3 * mine,
        "twin_ms": 1e3 * twin,
        "floor_ms": 1e3 * floor,
        "ours_to_twin": mine / twin,
        "ours_to_floor": mine / floor,
    }
