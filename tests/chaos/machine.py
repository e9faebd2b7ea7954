"""A simulated machine in the place of the real one, for the peers of a night."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from functools import partial
from typing import Any
from unittest.mock import patch

from basil.host import Host, instead
from basil.peer.link import gossip, guard
from basil.peer.link.say import LOG
from basil.peer.run import peer
from chaos.disks import Disks
from chaos.known import known
from chaos.learning import instead_of_torch
from chaos.seals import instead_of_keys
from chaos.threads import Condition, Event, Lock, Semaphore, Thread, World
from chaos.wires import Network

TURN = 0.05  # seconds that a turn is said to take
SWEEP = 0.5  # seconds between looks for what does not move, which takes 10 s to be ended
ROSTER_EVERY = 10.0  # seconds: in no night the roster changes


@contextmanager
def simulated(
    world: World, disks: Disks, network: Network, say: Callable[..., None] | None, real: bool
) -> Iterator[None]:
    """Peers have this world's clock, threads, chance, disks and network.

    `say`: told what they log, if somebody listens.  `real`: they compute with PyTorch.
    """
    log = {"disabled": True} if say is None else {"handlers": [_Told(say)]}
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
        patch.object(guard, "SWEEP", SWEEP),
        patch.multiple(gossip, FIRST=1, ROSTER_EVERY=ROSTER_EVERY),
        # How fast a machine is nobody can measure in a world in which nothing takes time.
        patch.object(peer, "seconds_of_a_turn", lambda *a: TURN),
        known(),
        nullcontext() if real else instead_of_torch(),
        patch.multiple(LOG, level=logging.INFO, propagate=False, **log),
    ):
        yield


class _Told(logging.Handler):
    """What nodes say."""

    def __init__(self, say: Callable[..., None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage(), vars(record).get("facts", {}))
