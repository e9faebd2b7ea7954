"""A ring cut into smaller ones, and how these are joined again (§IV-A, §V)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from basil.errors import UserError
from basil.topology.ring import Ring


def divide(order: tuple[int, ...], groups: int) -> tuple[tuple[int, ...], ...]:
    """§IV-A, phase 1: cut the agreed order into G stretches; their sizes differ by one at most."""
    if not 1 <= groups <= len(order):
        raise UserError(f"groups = {groups}: {len(order)} nodes make 1 to {len(order)} groups")
    small, larger = divmod(len(order), groups)
    sizes = [small + (g < larger) for g in range(groups)]
    starts = [sum(sizes[:g]) for g in range(groups)]
    return tuple(order[at : at + size] for at, size in zip(starts, sizes, strict=True))


@dataclass(frozen=True)
class Hop:
    """An average that a group takes in: whose, and how many groups are in it and in one's own.

    `depth`: how many hops one after the other there have been by then, this one included.
    """

    source: int
    theirs: int
    own: int
    depth: int


@dataclass(frozen=True)
class Route:
    """A group's part in the aggregation: what comes in, one after the other, and where it goes."""

    hops: tuple[Hop, ...]
    target: int


class Grouping:
    """G rings, the same in every node's eyes (§V-B), and the way of the average through them.

    With `fanout` = 0 the groups form one ring, as in the paper: G − 1 hops, one after the other.
    Otherwise they form rings of rings: `fanout` neighbouring groups join their models as above, all
    such circles at the same time; the last group of each then stands for its circle in a circle of
    circles, and so on: at most (fanout − 1) ⌈log G⌉ hops one after the other, the logarithm to the
    base fanout.  A group sends once either way.
    """

    def __init__(self, order: tuple[int, ...], groups: int, fanout: int = 0) -> None:
        if fanout < 0 or fanout == 1:
            raise UserError(f"fanout = {fanout}: it must be 2 or more, or 0 for one ring of groups")
        self.rings = tuple(Ring(part) for part in divide(order, groups))
        self.group_of = {node: g for g, ring in enumerate(self.rings) for node in ring.order}
        self.fanout = fanout

    def __len__(self) -> int:
        return len(self.rings)

    def ring_of(self, node: int) -> Ring:
        return self.rings[self.group_of[node]]

    def last(self, group: int, count: int) -> tuple[int, ...]:
        """S_g, eq. (10): the last nodes of a ring.  (Printed are u_{n−1} … u_{n−S+1}.)"""
        return self.rings[group].order[-count:]

    def first(self, group: int, count: int) -> tuple[int, ...]:
        """U_g, eq. (14): the first nodes of a ring."""
        return self.rings[group].order[:count]

    @property
    def largest(self) -> int:
        return max(map(len, self.rings))

    @property
    def depth(self) -> int:
        """Hops one after the other until the last group has the average of all."""
        return max((hop.depth for route in self.routes for hop in route.hops), default=0)

    @cached_property
    def routes(self) -> tuple[Route, ...]:
        """One for each group.  The last one's target is group 0, which hands the average round."""
        hops: list[list[Hop]] = [[] for _ in self.rings]
        targets = [0] * len(self.rings)
        # Who stands for a circle: its group, how many groups it speaks for, and since which hop.
        standing = [(g, 1, 0) for g in range(len(self.rings))]
        width = self.fanout or len(standing)
        while len(standing) > 1:
            circles = [standing[at : at + width] for at in range(0, len(standing), width)]
            standing = [_join(circle, hops, targets) for circle in circles]
        return tuple(Route(tuple(mine), to) for mine, to in zip(hops, targets, strict=True))


def _join(
    circle: Sequence[tuple[int, int, int]], hops: list[list[Hop]], targets: list[int]
) -> tuple[int, int, int]:
    """Pass the average along a circle of groups; its last one then stands for all of them."""
    source, speaks_for, ready = circle[0]
    for group, own, since in circle[1:]:
        ready = max(ready, since) + 1
        hops[group].append(Hop(source, speaks_for, own, ready))
        targets[source] = group
        source, speaks_for = group, speaks_for + own
    return source, speaks_for, ready
