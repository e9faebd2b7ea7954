"""How long a peer waits for others, and the clock that its protocol sees.

A protocol counts time in its own seconds and gives up a silent node after its `patience`, which the
recipe knows for the virtual machines of the simulator.  A real ring has its own speed.  So the
protocol's patience stays as it is, and its clock runs as fast as the ring does: in the time that
this node is willing to wait for a turn, the protocol's clock advances by one patience.  No protocol
needs to know, and no two machines' clocks need to agree: all that is measured is monotonic time on
one machine.

How long is that?  At the start `factor` (the recipe's time.patience) times the longest turn that
the nodes have measured and told each other, those b of them that claim the longest left out.  From
then on it follows the ring.  Where more than b nodes that were given up speak after all, the ring
has become slower and they were suspected wrongly: patience grows by half.  In every round without
such a thing it shrinks by a twentieth towards the start.  (Chandra and Toueg's failure detector for
partial synchrony raises its time-outs likewise.)  Up to b nodes that are slow, or come late on
purpose, change nothing: each costs one patience a lap, like a silent one.  A floor keeps a crowded
machine from suspecting everybody, a ceiling bounds what a bad hour can do.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from basil.host import host

FLOOR = 0.5  # seconds for a turn, however fast the ring is
STRETCH = 16.0  # at most so many times the patience of the start
GROWS, SHRINKS = 1.5, 0.95
REMEMBERED = 3  # rounds for which a wrong suspicion counts


class Clock:
    """The protocol's seconds since the start; it stands still until it is given a pace."""

    def __init__(self, monotonic: Callable[[], float] | None = None) -> None:
        self._monotonic = monotonic or host.monotonic
        self._base, self._since, self._pace = 0.0, self._monotonic(), 0.0
        self._lock = host.rlock()

    def now(self) -> float:
        with self._lock:
            return self._base + (self._monotonic() - self._since) * self._pace

    def restart(self, now: float) -> None:
        """Stand still at this moment: for a node that goes on from a checkpoint."""
        with self._lock:
            self._base, self._since, self._pace = now, self._monotonic(), 0.0

    def set_pace(self, pace: float) -> None:
        """From now on so many of the protocol's seconds in a real one."""
        with self._lock:
            self._base, self._since, self._pace = self.now(), self._monotonic(), pace

    def real_seconds_until(self, moment: float) -> float:
        with self._lock:
            return (moment - self.now()) / self._pace


class Patience:
    """Real seconds that a turn may take; keeps the protocol's clock at that pace."""

    def __init__(
        self,
        clock: Clock,
        protocol: float,
        turn: float,
        factor: float,
        floor: float = FLOOR,
        byzantine: int = 0,
    ) -> None:
        """`protocol`: the same in its own seconds; `turn`: real ones that a turn takes."""
        self._clock, self._protocol, self._byzantine = clock, protocol, byzantine
        self.least = max(floor, factor * turn)
        self.most = STRETCH * self.least
        self._late: dict[int, int] = {}  # sender -> the round in which it was suspected wrongly
        self.seconds = self.least
        self._set(self.least)

    def wrong(self, sender: int, k: int) -> None:
        """In round k a node that had been given up has spoken after all."""
        self._late[sender] = k
        if sum(then > k - REMEMBERED for then in self._late.values()) > self._byzantine:
            self._late.clear()
            self._set(min(self.most, GROWS * self.seconds))

    def calm(self) -> None:
        """A round has passed."""
        if self.seconds > self.least:
            self._set(max(self.least, SHRINKS * self.seconds))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Meanwhile nobody's time runs out."""
        self._clock.set_pace(0.0)
        try:
            yield
        finally:
            self._set(self.seconds)

    def _set(self, seconds: float) -> None:
        self.seconds = seconds
        self._clock.set_pace(self._protocol / seconds)


def longest_honest(claims: Iterable[float], byzantine: int) -> float:
    """The largest of some claims after the `byzantine` largest: no more than an honest node's.

    With fewer claims than that nobody can be believed: 0.
    """
    ordered = sorted(claims, reverse=True)
    return ordered[byzantine] if len(ordered) > byzantine else 0.0
