"""How many nodes may have owned a sample, as far as its receiver can tell (§IV-C).

Without collusion.  In the first round only those before the receiver have put something in; later,
by the paper's count, any of the other n − 1.

That count takes dummies for samples.  But whoever has the public data can look them up, and then
the dummy round tells more: what is no dummy there comes from one of the nodes *after* the receiver,
and the last but one node knows that it is the last one's.  An opening round of dummies likewise
helps only against those who cannot tell dummies from samples.  So both counts are given.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from basil.protocol.acds import Receipt
from basil.protocol.timetable import Timetable


@dataclass(frozen=True)
class Row:
    """So many samples, each with so many nodes that may have owned it."""

    receiver: int
    group: int
    round: int
    samples: int
    candidates: int  # as the paper counts
    candidates_if_dummies_known: int


def rows(table: Timetable, receiver: int, receipts: Iterable[Receipt]) -> list[Row]:
    """For all that a node has received."""
    return [
        Row(receiver, r.group, r.round, r.samples, *candidates(table, receiver, r.group, r.round))
        for r in receipts
        if r.samples
    ]


def candidates(table: Timetable, receiver: int, group: int, r: int) -> tuple[int, int]:
    """Possible owners: as the paper counts, and for one who knows which samples are dummies."""
    ring = table.groups[group]
    n = len(ring)
    if r == table.global_round:
        return n, n
    before = ring.index(receiver)
    if r == 1:
        return before, before
    if r == table.rounds + 1:
        return n - 1, n - 1 - before
    if table.opening and r == 2:
        return n - 1, before
    return n - 1, n - 1
