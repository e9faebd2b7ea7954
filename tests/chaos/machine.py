"""A simulated machine in the place of the real one, for the peers of a night."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import cache, partial
from typing import Any
from unittest.mock import patch

from torch import Tensor, nn

from basil import data
from basil.host import Host, instead
from basil.learning import compute
from basil.learning.layout import Layout
from basil.learning.symmetry.find import find
from basil.peer.link.say import LOG
from basil.peer.run import peer
from chaos.disks import Disks
from chaos.seals import instead_of_keys
from chaos.threads import Condition, Event, Lock, Semaphore, Thread, World
from chaos.wires import Network

TURN = 0.05  # seconds that a turn is said to take


@contextmanager
def simulated(
    world: World, disks: Disks, network: Network, say: Callable[..., None]
) -> Iterator[None]:
    """Peers have this world's clock, threads, chance, disks and network."""
    machine: dict[str, Any] = {
        **dict.fromkeys(("monotonic", "perf_counter", "time"), world.monotonic),
        **dict.fromkeys(("lock", "rlock"), partial(Lock, world)),
        "condition": partial(Condition, world),
        "event": partial(Event, world),
        "semaphore": partial(Semaphore, world),
        "thread": partial(Thread, world),
        "random": world.random,
        "disk": disks,
        "network": network,
    }
    assert machine.keys() == {each.name for each in fields(Host)}
    with (
        instead(Host(**machine)),
        instead_of_keys(),
        # How fast a machine is nobody can measure in a world in which nothing takes time.
        patch.object(peer, "seconds_of_a_turn", lambda *a: TURN),
        # The same for every node, and every night.
        patch.object(data, "load", _load),
        patch.object(compute, "find", _find),
        patch.multiple(LOG, handlers=[_Told(say)], propagate=False, level=logging.INFO),
    ):
        yield


_load = cache(data.load)
_found: dict[str, Any] = {}


def _find(network: nn.Module, layout: Layout, sample: Tensor) -> Any:
    if layout.fingerprint not in _found:
        _found[layout.fingerprint] = find(network, layout, sample)
    return _found[layout.fingerprint]


class _Told(logging.Handler):
    """What nodes say."""

    def __init__(self, say: Callable[..., None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage(), vars(record).get("facts", {}))
