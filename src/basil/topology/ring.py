"""The logical ring: who stands where, who comes before whom, and whose turn it is."""

from collections.abc import Iterable
from itertools import chain

import numpy as np

from basil import rng


def agree_on_order(ids: Iterable[int], seed: int) -> tuple[int, ...]:
    """§III-A, phase 1: every node sorts the ids and applies the same seeded permutation.

    All nodes that know the same ids and seed compute the same order, in whichever order they
    learned of each other, without exchanging a word.
    """
    ascending = sorted(ids)
    order = rng.stream(seed, "ring", "order").permutation(len(ascending))
    return tuple(ascending[i] for i in order)


class Ring:
    """N nodes in clockwise order.

    Turns are numbered along the ring: the node at position p takes *step* k·N + p in round k.  So
    "before" and "after" on the ring, across rounds, are comparisons of integers.
    """

    def __init__(self, order: Iterable[int]) -> None:
        self.order = tuple(order)
        self.size = len(self.order)
        self.position = {node: p for p, node in enumerate(self.order)}

    def __len__(self) -> int:
        return self.size

    def step(self, k: int, node: int) -> int:
        """The number of this node's turn in round k."""
        return k * self.size + self.position[node]

    def ahead(self, node: int, count: int) -> tuple[int, ...]:
        """The next nodes clockwise, nearest first."""
        p = self.position[node]
        return tuple(self.order[(p + s) % len(self.order)] for s in range(1, count + 1))

    def behind(self, node: int, count: int) -> tuple[int, ...]:
        """The previous nodes, counter-clockwise, nearest first."""
        p = self.position[node]
        return tuple(self.order[(p - s) % len(self.order)] for s in range(1, count + 1))

    def distance(self, behind: int, node: int) -> int:
        """How many places `behind` stands before `node`: 1 is the nearest predecessor."""
        return (self.position[node] - self.position[behind]) % len(self.order)


def in_rows(size: int, count: int, row: int, stream: np.random.Generator) -> list[int]:
    """Positions of `count` nodes that stand in rows of `row`, one of them shorter if need be.

    Rows and the gaps between them, of one node or more, come in random order, and the whole is
    turned by a random angle.  There must be some of either kind, and as many others as rows.
    """
    full, rest = divmod(count, row)
    rows = stream.permutation([row] * full + [rest] * (rest > 0))
    others = size - count
    # All ways to cut the others into as many pieces as there are rows, none of them empty.
    cuts = np.sort(stream.choice(np.arange(1, others), max(0, len(rows) - 1), replace=False))
    gaps = np.diff([0, *cuts, others])
    turn = int(stream.integers(size))
    steps = chain.from_iterable(
        [True] * int(length) + [False] * int(gap) for length, gap in zip(rows, gaps, strict=True)
    )
    return [(turn + place) % size for place, lies in enumerate(steps) if lies]
