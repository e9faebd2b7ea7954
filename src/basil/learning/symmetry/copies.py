"""No unit twice: what computes the same as another says nothing that the other could not.

Two units with the same incoming weights are one function with outgoing weights (a, b), or
(a + c, b − c) for any c.  No loss shows c, and each of them gets a gradient of its size.  So of two
that are the same the one that x⁰ knows stays, and is read as both were.  The other begins anew: as
in x⁰, with outgoing weights of 0.  No output changes, and there are as many units to learn with as
before.  (To let a unit that is of no use begin anew is known from reinforcement learning: Sokar et
al., ICML 2023, "The dormant neuron phenomenon in deep reinforcement learning".)
"""

import math

import torch
from torch import Tensor

from basil.learning.symmetry.arrays import joined
from basil.learning.symmetry.parts import Part, Symmetries, Units

SAME = 0.3  # a distance, in lengths of the shorter one
CHANCE = 0.9  # a cosine: where some pair of units comes as near by chance, none is the other's copy


def separable(symmetries: Symmetries) -> tuple[Units, ...]:
    """Units of which each computes something of its own, and what reads them adds that up.

    Not where a normalisation looks at all of them, as LayerNorm does.  (BatchNorm, which keeps
    variances, takes them one by one.)
    """
    alone = {frozenset(u.reads): u for u in symmetries.scaled if u.reads and not u.whole}
    found = []
    for units in symmetries.ordered:
        scaled = alone.get(frozenset(units.reads))
        if scaled is None or not (units.squares or set(scaled.makes) == set(units.makes)):
            continue
        entries = sum(part.before * part.after for part in _weights(units))
        by_chance = math.sqrt(4 * math.log(units.size) / entries) if entries else math.inf
        if by_chance < CHANCE:
            found.append(units)
    return tuple(found)


def _weights(units: Units) -> list[Part]:
    """What makes them, without the one number that a bias is."""
    return [part for part in units.makes if part.before * part.after > 1]


def without_copies(units: Units, vector: Tensor, initial: Tensor) -> Tensor | None:
    """In place: whether any unit begins anew; on a CPU None if none does.

    The units are in x⁰'s order.  Who is the copy: whose weights resemble its own beginning less.
    """
    rows, first = (joined([part.rows(x) for part in _weights(units)]) for x in (vector, initial))
    products = rows @ rows.T
    squares = products.diagonal()
    numbers = torch.arange(len(rows), device=rows.device)
    itself = numbers == numbers[:, None]
    apart = squares[:, None] + squares - 2 * products
    same = ~itself & (apart < SAME**2 * torch.minimum(squares[:, None], squares))
    if vector.device.type == "cpu" and not same.any():
        return None
    likeness = (rows * first).sum(1) / (rows.norm(dim=1) * first.norm(dim=1)).clamp(min=1e-12)
    stays = torch.where(same | itself, likeness, -torch.inf).argmax(1)
    copies = (stays != numbers) & (stays[stays] == stays)
    gives = (copies & (stays == numbers[:, None])).to(vector)  # [to, from]
    for part in units.reads:
        view = part.of(vector)
        theirs = torch.where(copies[:, None], view, 0.0)
        view.copy_(torch.where(copies[:, None], 0.0, view + gives @ theirs))
    for part in (*units.makes, *units.squares):
        view = part.of(vector)
        view.copy_(torch.where(copies[:, None], part.of(initial), view))
    return copies.any()
