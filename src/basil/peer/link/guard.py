"""Bounds in time and number: what does not move is ended, and nobody has much under way at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from basil.host import host
from basil.peer.messages.bodies import Refused

SWEEP = 0.1  # seconds


@dataclass(eq=False)
class Watched:
    """One transfer.  `ended` says that it was the guard who ended it."""

    cancel: Callable[[], object]
    deadline: float
    moved: float
    ended: bool = False

    def move(self) -> None:
        """A chunk has passed."""
        self.moved = host.monotonic()


class Guard:
    """Ends what has passed its deadline, or has not moved for `stall` seconds.

    `beside`: what else is to be looked at whenever it looks; it must not raise.
    """

    def __init__(self, stall: float, beside: Callable[[], object] = lambda: None) -> None:
        self.stall, self._beside = stall, beside
        self._watched: dict[Watched, None] = {}  # a set in order: nights are replayed
        self._lock = host.lock()
        self._over = host.event()
        self._thread = host.thread(target=self._run, name="basil-guard", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def watch(self, cancel: Callable[[], object], seconds: float) -> Iterator[Watched]:
        """Have this ended if it takes longer than that, or stalls."""
        now = host.monotonic()
        watched = Watched(cancel, now + seconds, now)
        with self._lock:
            self._watched[watched] = None
        try:
            yield watched
        finally:
            with self._lock:
                del self._watched[watched]

    def _run(self) -> None:
        while not self._over.wait(SWEEP):
            self._beside()
            now = host.monotonic()
            with self._lock:
                late = [w for w in self._watched if now > w.deadline or now > w.moved + self.stall]
            for watched in late:
                watched.ended = True
                with suppress(Exception):  # it may have ended by itself; the guard must not
                    watched.cancel()


class Places(dict[int, int]):
    """How many each member has under way: so many at the same time, and no more."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._lock = host.lock()

    @contextmanager
    def take(self, node: int) -> Iterator[None]:
        with self._lock:
            if self.get(node, 0) >= self._most:
                raise Refused("busy", f"{self._most} of this sender under way already")
            self[node] = self.get(node, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self[node] -= 1
                if not self[node]:
                    del self[node]


class Rate:
    """A token bucket for each member: so many a second on average, so many at once."""

    def __init__(self, each_second: float, burst: int) -> None:
        self._rate, self._burst = each_second, float(burst)
        self._level: dict[int, tuple[float, float]] = {}
        self._lock = host.lock()

    def allows(self, node: int) -> bool:
        now = host.monotonic()
        with self._lock:
            level, then = self._level.get(node, (self._burst, now))
            level = min(self._burst, level + (now - then) * self._rate)
            allowed = level >= 1
            self._level[node] = (level - 1 if allowed else level, now)
        return allowed
