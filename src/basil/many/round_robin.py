"""Several simulators on one device, by turns."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch

from basil.engine.relaxed_gc import relaxed_gc

STRETCH = 0.005  # seconds: some twenty turns of a ring, so that changing over costs nothing
AT_ONCE = 32  # rings that keep a GPU busy, in however many processes


def round_robin(
    runs: Iterable[Iterator[bool]],
    device: torch.device,
    at_once: int = AT_ONCE,
    alone: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Let each go on for a stretch, again and again, until all have ended; yields in between.

    On a GPU each has a stream of its own.  None waits for the device, so it always has work of all
    of them, and computes them side by side.  When one ends, the next takes its place, and its
    memory.  `alone`: one keeps the device busy by itself, which is known once the first is at work.
    """
    waiting, lanes = iter(runs), _lanes(device, at_once)
    at_work = list(zip(lanes[:1], waiting, strict=False))
    with relaxed_gc():
        while at_work:
            going_on = []
            for lane, run in at_work:
                with lane:
                    goes_on = _goes_on(run)
                if goes_on:
                    going_on.append((lane, run))
                else:
                    _clear_up(device)
            free = [lane for lane in lanes if all(lane is not other for other, _ in going_on)]
            more = (1 if alone() else at_once) - len(going_on)
            at_work = going_on + list(zip(free[: max(0, more)], waiting, strict=False))
            yield


def _clear_up(device: torch.device) -> None:
    """Nodes and their simulator know each other: a run that has ended is there until the collector
    comes, and an unhurried one does not come for hours.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()  # other processes want it, too


def _lanes(device: torch.device, count: int) -> list[AbstractContextManager[object]]:
    if device.type != "cuda":
        return [nullcontext() for _ in range(count)]
    here = torch.cuda.current_stream(device)
    streams = [torch.cuda.Stream(device) for _ in range(count)]
    for stream in streams:
        stream.wait_stream(here)
    return [torch.cuda.stream(stream) for stream in streams]


def _goes_on(run: Iterator[bool]) -> bool:
    """Let it go on for a stretch.  By the clock: an instant may be any length."""
    until = time.perf_counter() + STRETCH
    return any(time.perf_counter() >= until for _ in run)
