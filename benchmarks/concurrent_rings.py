"""Turns a second against the number of rings that share a device, in one or more processes."""

import multiprocessing
from typing import Any

import torch
from rings import noise, ring, seconds_a_turn

from basil.experiment import Setup
from basil.many.gpu import gpu_processes
from basil.many.round_robin import AT_ONCE


def measure(
    device: str,
    plan: str | None = None,
    rule: str = "lowest-loss",
    attack: str = "none",
    steps: int = 1,
) -> list[dict[str, float]]:
    """(processes, rings in each); on a GPU compiled, and measured once all are warm."""
    kind = {
        "rule": rule,
        "attack": attack,
        "steps": steps,
        "byzantine": 0 if attack == "none" else 33,
    }
    here = gpu_processes()
    on_gpu = [(1, 1), (1, 4), (1, 16), (2, 8), (here, AT_ONCE // here)]
    plans = on_gpu if device == "cuda" else [(1, 1), (1, 4), (2, 2)]
    if plan is not None:
        p, _, r = plan.partition("x")
        plans = [(int(p), int(r))]
    return [
        {"processes": p, "rings": p * r, "turns_a_second": _turns_a_second(p, r, device, kind)}
        for p, r in plans
    ]


def _turns_a_second(processes: int, rings: int, device: str, kind: dict[str, Any]) -> float:
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(processes), context.Queue()
    workers = [
        context.Process(target=_work, args=(rings, device, kind, barrier, answers))
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    found = [answers.get() for _ in workers]
    for worker in workers:
        worker.join()
    return sum(turns for turns, _ in found) / max(seconds for _, seconds in found)


def _work(rings: int, device: str, kind: dict[str, Any], barrier: Any, answers: Any) -> None:
    """The clock starts when the rings of all processes are warm."""
    torch.set_num_threads(1)
    cuda = device == "cuda"
    data = noise(50_000, (3, 32, 32))
    experiments: list[Setup] = []
    for seed in range(rings):
        experiments.append(
            ring(
                rounds=24 if cuda else 3,
                device=device,
                data=data,
                seed=seed,
                compiled=cuda,
                **kind,
                reuse=experiments[0] if experiments else None,
            )
        )
    seconds, turns = seconds_a_turn(experiments, (800 if cuda else 50) * rings, barrier.wait)
    answers.put((turns, seconds * turns))
