"""How many nodes may have owned a sample, as far as its receiver can tell (§IV-C).

Without collusion.  In the first round only those before the receiver have put something in; later,
by the paper's count, any of the other n − 1.

That count takes dummies for samples.  But a node that has the public data can look them up, and
then the dummy round tells more: what is no dummy there comes from one of the nodes *after* the
receiver, and the last but one node knows that it is the last one's.  An opening round of dummies
likewise helps only against those who cannot tell dummies from samples.  So both counts are given.

With collusion.  Two nodes that tell each other what they saw know what the nodes between them took
out and put in: X_B less X_A, where A passed on X_A and B received X_B.  So c colluders cut a ring
into arcs, and every sample that they see can be told to one arc: its candidates are the honest
nodes of that arc, one where an honest node stands between two Byzantine ones (`arcs`).  Within an
arc the shuffles hold: order and form say nothing.  Colluders in other groups add nothing to that.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from basil.protocol.sharing.acds import Receipt
from basil.protocol.sharing.timetable import Timetable


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


def arcs(table: Timetable, colluders: Collection[int]) -> dict[int, int]:
    """Honest node -> how many may own its samples, for all nodes that collude, taken together."""
    found: dict[int, int] = {}
    for ring in table.groups:
        cuts = [place for place, node in enumerate(ring) if node in colluders]
        for place, node in enumerate(ring):
            if node in colluders:
                continue
            before = max((cut for cut in cuts if cut < place), default=None)
            after = min((cut for cut in cuts if cut > place), default=None)
            if not cuts:
                found[node] = len(ring)
            elif before is None or after is None:  # the arc that goes round the ring's beginning
                found[node] = cuts[0] + len(ring) - 1 - cuts[-1]
            else:
                found[node] = after - before - 1
    return found
