"""The machine that a peer runs on: clock, threads, chance, disk, and the way to others.

Peers ask `host` for all of these.  A test can put another machine in its place, in which one seed
drives time, threads, disks and the network (`tests/chaos`).
"""

import os
import threading
import time as clocks
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Any, Protocol


class Network(Protocol):
    """What takes the place of `basil.peer.link.rpc`."""

    server: Callable[..., Any]
    channel: Callable[..., Any]
    connections: Callable[..., Any]


@dataclass
class Host:
    """The machine as it is; `disk` has the calls of `os`, `network` is gRPC if it is None."""

    monotonic: Callable[[], float] = clocks.monotonic
    perf_counter: Callable[[], float] = clocks.perf_counter
    time: Callable[[], float] = clocks.time
    lock: Callable[[], threading.Lock] = threading.Lock
    rlock: Callable[[], Any] = threading.RLock
    condition: Callable[[], threading.Condition] = threading.Condition
    event: Callable[[], threading.Event] = threading.Event
    semaphore: Callable[[int], threading.Semaphore] = threading.Semaphore
    thread: Callable[..., threading.Thread] = threading.Thread
    random: Random = field(default_factory=SystemRandom)
    disk: Any = os
    network: Network | None = None


host = Host()


@contextmanager
def instead(other: Host) -> Iterator[None]:
    """Peers that are made meanwhile run on this machine."""
    before = dict(vars(host))
    vars(host).update(vars(other))
    try:
        yield
    finally:
        vars(host).update(before)
