"""Hidden units in x⁰'s order: without one order, averages and distances of models mean nothing.

Training turns a unit away from what it was in x⁰, but never towards what another one was.  So where
a Byzantine node has changed places, the likeness to x⁰ shows where units belong.
"""

import math

import torch
from torch import Tensor

from basil.learning.symmetry.parts import SLACK, Units

try:  # it comes with torch where there is a GPU for it
    from basil.learning.symmetry.places_kernel import MOST, places_of
except ImportError:
    MOST = 0

ENOUGH = 512  # weights of a unit that are compared
SURE = 0.5  # a cosine that is enough where few weights leave much to chance
PASSES = 4


def signature(units: Units, vector: Tensor) -> Tensor:
    """[unit, entry]: the direction of its incoming weights, by some of them."""
    rows = units.gauge.rows(vector)
    some: Tensor = rows[:, :: -(-rows.shape[1] // ENOUGH)].nan_to_num(0, 0, 0)
    length: Tensor = torch.linalg.vector_norm(some, dim=1, keepdim=True)
    return some / length.clamp(min=1e-12)


def places(ours: Tensor, theirs: Tensor) -> Tensor | None:
    """For each of our signatures the number of theirs that belongs in its place; None: its own.

    Two belong together if each is the other's most similar, and more so than by chance: of n² pairs
    of directions of d entries that have nothing to do with each other, the largest cosine is about
    √(4 ln n / d).  The rest stay where they are, or keep their order.
    """
    units, entries = ours.shape
    sure = min(SURE, math.sqrt(4 * math.log(units) / entries))
    likeness = ours @ theirs.T
    looks = ours.device.type == "cpu"
    if not looks and units <= MOST:
        order: Tensor = places_of(likeness[None], sure, SLACK, PASSES)[0]
        return order
    own = likeness.diagonal().add_(SLACK)  # of two that are alike the one that is there stays
    if looks and ((own == likeness.amax(1)) & (own == likeness.amax(0))).all():
        return None
    rows = torch.arange(units, device=likeness.device)
    belongs, found, taken = rows, torch.zeros_like(rows), torch.zeros_like(rows)
    for tried in range(PASSES):  # who loses its most similar to another has a next one
        (like, best), back = likeness.max(1), likeness.max(0).indices
        mutual = (back[best] == rows) & (like > sure)
        if looks and not mutual.any():  # nor would there be one in the next pass
            if tried == 0:
                return None
            break
        belongs = torch.where(mutual, best, belongs)
        # (A scatter would be compiled anew for each number of rings.)
        taken = taken + (mutual[:, None] & (best[:, None] == rows)).sum(0)
        found = found + mutual
        likeness = likeness.masked_fill((found[:, None] + taken) > 0, -1.0)
    free = (found + taken == 0).long()  # in a place that nobody else takes
    found, taken = found + free, taken + free
    free_rows, free_columns = (who.argsort(stable=True) for who in (found, taken))
    rest = free_columns[free_rows.argsort()]
    return torch.where(found > 0, belongs, rest)
