"""When each basket of Algorithm 2 is due, and how much it may hold: what all nodes agree on."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Timetable:
    """H batches of M samples in groups; `hop` is the time that so many samples take on a link.

    Rounds are numbered from 1; the last one in a group is the dummy round.  With `opening` a round
    of dummies comes before the first batch.  A basket is given up `patience` times as late as it
    would be if nobody were late: a node that waited in vain goes on by then, so no wait is in vain
    only because an earlier one was.
    """

    groups: tuple[tuple[int, ...], ...]
    batches: int  # H
    size: int  # M
    hop: Callable[[int], float]
    patience: float = 3.0
    opening: bool = False
    senders: int = 1  # nodes of each group that send what it has shared to all others

    @property
    def rounds(self) -> int:
        """Before the dummy round."""
        return self.batches + self.opening

    @property
    def global_round(self) -> int:
        return self.rounds + 2

    def group_of(self, node: int) -> int:
        return next(g for g, ring in enumerate(self.groups) if node in ring)

    def due(self, n: int, position: int, r: int) -> float:
        """Seconds from the start to the arrival at a position 0 … n−1 in round r (App. D)."""
        before = position if r == 1 else n
        first_lap = sum(self.hop(j * self.size) for j in range(1, before + 1))
        if r == 1:
            return first_lap
        return first_lap + ((r - 2) * n + position) * self.hop(n * self.size)

    def deadline(self, n: int, position: int, r: int) -> float:
        return self.patience * self.due(n, position, r)

    def last_call(self, n: int, position: int, r: int) -> float:
        """Until when a lost basket may come a second time: the next node's deadline less one hop.

        From one deadline to the next there are `patience` hops, of which the next pass takes one.
        """
        spare = (self.patience - 1) * self.hop((position if r == 1 else n) * self.size)
        return self.deadline(n, position, r) + spare

    def first_call(self, n: int, position: int, r: int) -> float:
        """From when on a basket may be reported missing: the deadline, less what clocks may differ.

        That is as much as `last_call` comes after it.
        """
        return 2 * self.deadline(n, position, r) - self.last_call(n, position, r)

    def _cycles(self) -> float:
        """Phase 2 of the slowest group: its dummy round ends at node n − 1."""
        return max(self._cycle(len(ring)) for ring in self.groups)

    def _cycle(self, n: int) -> float:
        return self.due(n, n - 2, self.rounds + 1) if n > 1 else 0.0

    def until_global(self, n: int, position: int) -> float:
        """From a node's last basket to the end of all dummy rounds."""
        last = self.due(n, position, self.rounds + 1) if 1 < n > position + 1 else self._cycle(n)
        return max(0.0, self._cycles() - last)

    def end(self) -> float:
        """When a node waits no longer for what other groups share."""
        links = sum(self.hop(self.most_from_group(g)) for g in range(len(self.groups)))
        return self.patience * (self._cycles() + self.senders * links)

    def most_from_others(self, n: int, position: int, r: int) -> int:
        """What those who put a batch into the basket can have put in."""
        return self.size * (position if r == 1 else n - 1)

    def most_from_group(self, group: int) -> int:
        return len(self.groups[group]) * self.size * self.rounds
