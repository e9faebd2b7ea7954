"""Work that is done again and again, with other numbers each time.

A piece of work is a function of a command: a few hundred integers in a fixed place on the device.
The first times it is run as it stands, which also lets libraries choose their algorithms; then it
is captured as a CUDA graph, and from then on one copy and one launch do all of it.
"""

import gc
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PLAIN_RUNS = 3
SPARE = 2**30  # bytes
AHEAD = 128  # how many commands the host may be ahead of the device


Command = tuple[Sequence[NDArray[np.int64]], Sequence[int]]
"""The numbers of samples, and then other numbers."""


@dataclass(slots=True, eq=False)
class Task:
    """One ring's part of a launch."""

    command: Command
    reads: int | None = None  # the row of the model that is scored, if that is all it does
    given: Sequence[Tensor] = ()  # what is copied to where the launch finds it
    made: Sequence[Tensor] = ()  # what the launch leaves is copied to these
    results: Sequence[tuple[int, Tensor]] = ()  # and these rows, to these models
    holders: Sequence[object] = ()  # of its places, which are nobody else's until it is done

    def put_before(self, other: "Task") -> None:
        """One command, whose first part is another's."""
        (first, numbers), (samples, more) = other.command, self.command
        self.command = [*first, *samples], [*numbers, *more]
        self.holders = [*other.holders, *self.holders]


class Fields:
    """Cuts commands into their parts, in the order in which they were put together."""

    def __init__(self, command: Tensor) -> None:
        self._command = command
        self._start = 0

    def next(self, length: int) -> Tensor:
        start, self._start = self._start, self._start + length
        return self._command[..., start : self._start]


def bits_of(rate: float) -> int:
    """A float64 in the place of an int64."""
    bits: int = struct.unpack("<q", struct.pack("<d", rate))[0]
    return bits


class GraphMemory:
    """Where captured graphs keep what they compute on the way: some hundred megabytes.

    Those that never run at the same time, and whose results lie elsewhere, can all use the same.
    """

    def __init__(self) -> None:
        self.pool: Any = None  # as PyTorch names it, once there is a graph


class Launch:
    """One kind of work with its command buffer: [ring, number] of as many rings."""

    def __init__(
        self,
        work: Callable[[Tensor], None],
        length: int,
        device: torch.device,
        memory: GraphMemory | None = None,
        rings: int = 1,
    ) -> None:
        self._work = work
        self._memory = memory or GraphMemory()
        self._length = length
        self._cuda = device.type == "cuda"
        self._command = torch.zeros(rings, length, dtype=torch.int64, device=device)
        shape, pinned = (AHEAD, rings, length), self._cuda and length > 0
        host = torch.zeros(shape, dtype=torch.int64, pin_memory=pinned)
        self._host = list(zip(host, host.numpy(), strict=True))  # views, made once
        self._taken: list[torch.cuda.Event | None] = [None, None]  # one for each half of the rows
        self._runs = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, commands: Sequence[Command]) -> None:
        at = self._runs % AHEAD
        half, first = divmod(at, AHEAD // 2)
        if first == 0:
            before = self._taken[half]
            if before is not None:  # the device may not have copied these rows yet
                before.synchronize()
        there, rows = self._host[at]
        for row, (samples, numbers) in zip(rows, commands, strict=True):
            split = self._length - len(numbers)
            if samples:
                np.concatenate(samples, out=row[:split])
            row[split:] = numbers
        self._command.copy_(there, non_blocking=True)
        if self._cuda and first == AHEAD // 2 - 1:
            self._taken[half] = torch.cuda.current_stream().record_event()
        self._runs += 1
        if self._graph is not None:
            self._graph.replay()
        elif self._cuda and self._runs > PLAIN_RUNS:
            self._capture()
            assert self._graph is not None
            self._graph.replay()
        else:
            self._work(self._command)

    def _capture(self) -> None:
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # cuBLAS keeps one workspace for each stream, and streams are handed out again: two graphs
        # that were captured on the same one would write into the same workspace when they run side
        # by side (pytorch issue 193402).  Forgotten before and after, each graph has its own.
        torch._C._cuda_clearCublasWorkspaces()
        # torch.cuda.graph() would sweep all of Python's heap here.
        with torch.cuda.stream(stream), nothing_swept():
            # Other rings may be at work in this process: their calls must not break this capture.
            graph.capture_begin(self._memory.pool, capture_error_mode="thread_local")
            try:
                self._work(self._command)
            except BaseException:
                with suppress(RuntimeError):  # of a capture that was broken off: not the reason
                    graph.capture_end()
                self._memory.pool = None  # it may count as recorded to for ever
                raise
            graph.capture_end()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.synchronize()
        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > SPARE:
            torch.cuda.empty_cache()  # what the plain runs took, and nobody takes again
        self._memory.pool = graph.pool()
        self._graph = graph


@contextmanager
def nothing_swept() -> Iterator[None]:
    """Python's collector waits: it may free memory of the device, which breaks a capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
