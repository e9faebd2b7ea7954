"""Samples that travel together, and nothing that tells whose they are."""

from collections import Counter
from math import ceil

import numpy as np
from numpy.typing import NDArray

from basil.data.samples import Array


class Basket:
    """Rows of one array, one for each sample; what a row holds is not the protocol's business.

    A peer's rows are the bytes of x and y.  The simulator's are numbers of samples in its pool, so
    that thousands of baskets cost no memory; `bits` says what a sample takes on the wire.  There is
    one type, one shape and one length for all rows: no row can be told from another by its form.
    Never changed once made.
    """

    __slots__ = ("bits", "rows")

    def __init__(self, rows: Array, bits: float) -> None:
        self.rows = rows
        self.bits = bits

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def wire_bytes(self) -> int:
        """What Proposition 3 counts."""
        return ceil(len(self) * self.bits / 8)

    def alike(self, other: "Basket") -> bool:
        """Are both made of the same kind of rows?"""
        mine, its = self.rows, other.rows
        return mine.dtype == its.dtype and mine.shape[1:] == its.shape[1:]

    def plus(self, other: "Basket") -> "Basket":
        return self._of(np.concatenate([self.rows, other.rows]))

    def without(self, other: "Basket") -> "Basket":
        """Each of the other's rows taken out once, where it is there."""
        gone = Counter(other._keys())
        stays = np.ones(len(self), bool)
        for i, key in enumerate(self._keys()):
            if gone[key] > 0:
                gone[key] -= 1
                stays[i] = False
        return self.only(stays)

    def distinct(self) -> "Basket":
        """Every row once, at its first place."""
        first = {key: i for i, key in reversed(list(enumerate(self._keys())))}
        return self.only(np.array(sorted(first.values()), np.int64))

    def unknown_to(self, other: "Basket") -> "Basket":
        """The rows that the other does not have at all."""
        known = set(other._keys())
        return self.only(np.array([key not in known for key in self._keys()], bool))

    def only(self, which: NDArray[np.bool_] | NDArray[np.int64] | slice) -> "Basket":
        return self._of(self.rows[which])

    def shuffled(self, stream: np.random.Generator) -> "Basket":
        return self.only(stream.permutation(len(self)))

    def _of(self, rows: Array) -> "Basket":
        return Basket(rows, self.bits)

    def _keys(self) -> list[bytes]:
        rows = np.ascontiguousarray(self.rows)
        return [row.tobytes() for row in rows]
