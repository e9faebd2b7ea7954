"""Several simulators on one device, by turns."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice

import torch

from basil.engine.collector import unhurried_collector

STRETCH = 0.005  # seconds: some twenty turns of a ring, so that changing over costs nothing
LOOK = 16  # instants between two looks at the clock


def together(runs: Sequence[Iterator[bool]], device: torch.device) -> Iterator[list[bool]]:
    """Let each go on for a stretch, again and again, until all have ended.

    On a GPU each has a stream of its own.  None waits for the device, so it always has work of all
    of them, and computes them side by side.  Yields which of them are still running.
    """
    streams: list[AbstractContextManager[object]]
    if device.type == "cuda":
        here = torch.cuda.current_stream(device)
        own = [torch.cuda.Stream(device) for _ in runs]
        for stream in own:
            stream.wait_stream(here)
        streams = [torch.cuda.stream(stream) for stream in own]
    else:
        streams = [nullcontext() for _ in runs]
    running = [True] * len(runs)
    with unhurried_collector():
        while any(running):
            for i, (run, lane) in enumerate(zip(runs, streams, strict=True)):
                if running[i]:
                    with lane:
                        running[i] = _goes_on(run)
            yield running


def _goes_on(run: Iterator[bool]) -> bool:
    """Let it go on for a stretch.  By the clock: an instant of one scheme is ten of another."""
    until = time.perf_counter() + STRETCH
    while time.perf_counter() < until:
        if sum(1 for _ in islice(run, LOOK)) < LOOK:
            return False
    return True
