"""No unit twice: what computes the same as another says nothing that the other could not.

Two units with the same incoming weights are one function with outgoing weights (a, b), or
(a + c, b − c) for any c.  No loss shows c, and each of them gets a gradient of its size.  So of two
that are the same the one that x⁰ knows stays, and is read as both were.  The other begins anew: as
in x⁰, with outgoing weights of 0.  Of true copies no output changes (of what only comes near, the
loss shows it), and there are as many units to learn with as before.  (To let a unit that is of no
use begin anew is known from reinforcement learning: Sokar et al., ICML 2023, "The dormant neuron
phenomenon in deep reinforcement learning".)
"""

import math

import torch
from torch import Tensor

from basil.learning.symmetry.arrays import Array, as_array, joined, quiet, where
from basil.learning.symmetry.parts import Part, Symmetries, Units

SAME = 0.95  # a cosine of incoming weights
ENOUGH = 64  # of a unit's weights are compared
CHANCE = 0.9  # where some pair is as near by chance, or in x⁰, none is the other's copy


def separable(symmetries: Symmetries, initial: Tensor) -> tuple[Units, ...]:
    """Units of which each computes something of its own, and what reads them adds that up.

    Not where a normalisation looks at all of them, as LayerNorm does.  (BatchNorm, which keeps
    variances, takes them one by one.)  Nor where x⁰ has units that are nearly the same: a network
    that comes trained may.
    """
    alone = {frozenset(u.reads): u for u in symmetries.scaled if u.reads and not u.whole}
    found = []
    for units in symmetries.ordered:
        scaled = alone.get(frozenset(units.reads))
        if scaled is None or not (units.squares or set(scaled.makes) == set(units.makes)):
            continue
        entries = min(ENOUGH, sum(part.before * part.after for part in _weights(units)))
        enough = entries * CHANCE**2 > 4 * math.log(units.size)
        if enough and not has_copies(units, initial.cpu(), initial.cpu(), CHANCE):
            found.append(units)
    return tuple(found)


def _weights(units: Units) -> list[Part]:
    """What makes them, without the one number that a bias is."""
    return [part for part in units.makes if part.before * part.after > 1]


def _directions(units: Units, vector: Array, initial: Array) -> Array:
    """[unit, entry]: of its incoming weights, by some of them.

    None counts for more than twice what is usual in x⁰: else heavy weights that all units have in
    common, from a unit that no sample activates, would make each of them the copy of any other.
    """
    weights = _weights(units)
    every = -(-sum(part.before * part.after for part in weights) // ENOUGH)
    some, first = (joined([p.rows(x)[:, ::every] for p in weights]) for x in (vector, initial))
    most = 2 * abs(first).mean()
    some = some.clip(-most, most)
    lengths = (some * some).sum(1).reshape(-1, 1) ** 0.5
    return some / where(lengths == 0, 1.0, lengths)


def has_copies(units: Units, vector: Tensor, initial: Tensor, same: float = SAME) -> bool:
    """For a CPU, where it can be looked at and hardly ever is so."""
    with quiet(vector):
        now = torch.from_numpy(_directions(units, as_array(vector), as_array(initial)))
    likeness = (now @ now.T).numpy()  # in as many threads as all else: numpy has some of its own
    likeness.ravel()[:: len(now) + 1] = 0
    return bool(likeness.max() > same)


def without_copies(units: Units, vector: Tensor, initial: Tensor) -> Tensor:
    """In place: whether any unit begins anew.

    The units are in x⁰'s order.  Who is the copy: whose weights resemble its own beginning less.
    """
    now, first = (_directions(units, x, initial) for x in (vector, initial))
    likeness, to_first = now @ now.T, (now * first).sum(1)
    numbers = torch.arange(len(now), device=now.device)
    same = (likeness > SAME) | (numbers == numbers[:, None])
    stays = torch.where(same, to_first, -torch.inf).argmax(1)
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
