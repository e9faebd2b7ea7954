"""Hidden units in x⁰'s order: without one order, averages and distances of models mean nothing.

Training turns a unit away from what it was in x⁰, but never towards what another one was.  So where
a Byzantine node has changed places, the likeness to x⁰ shows where units belong.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from basil.learning.symmetry.parts import Units

ENOUGH = 64  # weights of a unit that are compared
SURE = 0.5  # the least cosine by which a unit is known again


def signature(units: Units, vector: Tensor) -> Tensor:
    """[unit, entry]: the direction of its incoming weights, by some of them."""
    rows = units.gauge.rows(vector)
    return normalize(rows[:, :: -(-rows.shape[1] // ENOUGH)].nan_to_num(0, 0, 0), dim=1)


def places(ours: Tensor, theirs: Tensor) -> Tensor | None:
    """For each of our signatures the number of theirs that belongs in its place; None: its own.

    Two belong together if each is the other's most similar, beyond doubt; the rest keep their
    order.
    """
    likeness = ours @ theirs.T
    own, row, column = likeness.diagonal(), likeness.amax(1), likeness.amax(0)
    if ours.device.type == "cpu" and bool(((own == row) & (own == column)).all()):
        return None
    rows = torch.arange(len(likeness), device=likeness.device)
    best, back = likeness.argmax(1), likeness.argmax(0)
    mutual = (back[best] == rows) & (row > SURE)  # rows, and columns, with a partner
    taken = (best[back] == rows) & (column > SURE)
    free_rows, free_columns = (free.int().argsort(stable=True) for free in (mutual, taken))
    rest = torch.empty_like(rows).scatter(0, free_rows, free_columns)
    return torch.where(mutual, best, rest)
