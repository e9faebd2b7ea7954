"""One benign turn of the CIFAR ring: ours, the plain-PyTorch twin, and the FLOP floor."""

import copy
import time
from typing import Any

import numpy as np
import torch
from rings import finish, noise, ring, seconds_a_turn
from torch import nn

# Multiply-adds count twice; of conv1's 30×30 places 21×21 are seen later, of conv2's 7×7 4×4; then
# the three linear layers.
FORWARD_FLOPS = 2 * (21 * 21 * 16 * 27 + 4 * 4 * 64 * 256 + 64 * 384 + 384 * 192 + 192 * 10)


def table_2() -> nn.Module:
    """The paper's network as it stands there."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(3, 3),
        nn.Conv2d(16, 64, 4), nn.ReLU(), nn.MaxPool2d(4, 4), nn.Flatten(),
        nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10),
    )  # fmt: skip


def twin_seconds(connectivity: int, batch: int, device: str, turns: int) -> float:
    """What one would write without thinking of speed: S modules, S forward passes, an optimiser."""
    x = torch.randint(0, 256, (5000, 3, 32, 32), dtype=torch.uint8, device=device)
    y = torch.randint(0, 10, (5000,), device=device)
    stored = [table_2().to(device) for _ in range(connectivity)]
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
    """Milliseconds a turn and ratios; ours and the twin by turns, so that both see one machine.

    With Byzantine nodes a benign turn bears its share of theirs: half a Gaussian turn at b = 33 of
    100.
    """
    ways = [("ours", False)] if device == "cpu" else [("ours", False), ("ours compiled", True)]
    found: dict[str, Any] = {}
    twins: list[float] = []
    for name, compiled in ways:
        for byzantine in (0, 33):
            ours = []
            for _ in range(3):
                twins.append(twin_seconds(connectivity, batch, device, 12))
                ours.append(_ours(device, connectivity, batch, byzantine, compiled))
            found[f"{name}, {byzantine} Byzantine"] = float(np.median(ours))
    twin = float(np.median(twins))
    floor = 1e3 * FORWARD_FLOPS * batch * (connectivity + 3) / matmul_rate(device)
    ratios = {f"{name}, to twin": ms / (1e3 * twin) for name, ms in found.items()}
    return {**found, "twin": 1e3 * twin, "floor": floor, **ratios}


def _ours(device: str, connectivity: int, batch: int, byzantine: int, compiled: bool) -> float:
    rounds, warm_up = (20, 600) if device == "cuda" else (2, 40)
    experiment = ring(
        byzantine=byzantine,
        connectivity=connectivity,
        batch=batch,
        rounds=rounds,
        device=device,
        attack="gaussian" if byzantine else "none",
        data=_DATA,
        compiled=compiled,  # each anew: rings that share it do their work in another way
    )
    return 1e3 * seconds_a_turn([experiment], warm_up)[0]


_DATA = noise(10_000, (3, 32, 32))
