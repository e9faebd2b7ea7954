"""Several simulators on one device, by turns."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from enum import Enum

import torch

from basil.engine.full_pace import full_pace

STRETCH = 0.005  # seconds: some twenty turns of a ring, so that changing over costs nothing
AT_ONCE = 64  # rings that keep a GPU busy, in however many processes


class Sharing(Enum):
    """How rings share a device."""

    ALONE = "one keeps it busy"
    SIDE_BY_SIDE = "each has a stream of its own"
    JOINED = "what they ask for is one computation"


def round_robin(
    runs: Iterable[Iterator[bool]],
    device: torch.device,
    at_once: int = AT_ONCE,
    sharing: Callable[[], Sharing] = lambda: Sharing.SIDE_BY_SIDE,
    waited: Callable[[], int] = lambda: 0,
) -> Iterator[None]:
    """Let each go on for a stretch, again and again, until all have ended; yields in between.

    None waits for the device, so it always has work of all of them.  When one ends, the next takes
    its place, and its memory.  `sharing` is known once the first is at work.  `waited`: how often
    one has waited for others so far; who does lets them go on.
    """
    waiting, first = iter(runs), _lanes(device, 1, Sharing.ALONE)
    lanes, free = first, []
    at_work = list(zip(lanes, waiting, strict=False))
    with full_pace():
        while at_work:
            ended = []
            for lane, run in at_work:
                with lane:
                    goes_on = _goes_on(run, waited)
                if not goes_on:
                    ended.append(run)
                    _clear_up(device)
            if len(lanes) == 1 and sharing() is not Sharing.ALONE:
                lanes = first + _lanes(device, at_once - 1, sharing())
                free = lanes[1:]
            if ended:
                free += [lane for lane, run in at_work if run in ended]
                at_work = [(lane, run) for lane, run in at_work if run not in ended]
            begun = list(zip(free, waiting, strict=False))
            # They ask for something before those go on who wait to be joined.
            at_work, free = begun + at_work, free[len(begun) :]
            yield


def _clear_up(device: torch.device) -> None:
    """Nodes and their simulator know each other: a run that has ended is there until the collector
    comes, and an unhurried one does not come for hours.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()  # other processes want it, too


def _lanes(
    device: torch.device, count: int, sharing: Sharing
) -> list[AbstractContextManager[object]]:
    if device.type != "cuda" or sharing is not Sharing.SIDE_BY_SIDE:
        return [nullcontext() for _ in range(count)]
    here = torch.cuda.current_stream(device)
    streams = [torch.cuda.Stream(device) for _ in range(count)]
    for stream in streams:
        stream.wait_stream(here)
    return [torch.cuda.stream(stream) for stream in streams]


def _goes_on(run: Iterator[bool], waited: Callable[[], int]) -> bool:
    """Let it go on for a stretch.  By the clock: an instant may be any length."""
    until, before = time.perf_counter() + STRETCH, waited()
    return any(waited() != before or time.perf_counter() >= until for _ in run)
