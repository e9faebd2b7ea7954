"""One form for all models that are the same function: the canonical form.

A Byzantine node can change how a model is written down without changing what it computes.  No loss
shows it, and the next gradient step, which acts on weights, goes wrong.  So every model is brought
to one member of its orbit before anybody trains from it or compares it.

*Scale.*  Each hidden unit is multiplied so that the typical size of its incoming weights is what it
was, on average over its layer, in x⁰; what reads it is divided.  Typical is the mean of the middle
half of |w|.  An incoming weight from a unit that is never active is seen by no loss: a norm moves
with the first such weight, this mean stays bounded while they are less than a quarter.  And a step
hardly moves it.  A median would move by as much as one weight does, which would lengthen every turn
and hide in it what a rule could see.
*Order.*  Each hidden unit stands in the place of the one in x⁰ that it resembles.
*Basis.*  The incoming rows A of a pair are replaced by those nearest to x⁰'s of all A' with the
same row space and A'A'ᵀ = δI; what reads them follows.

In closed form, from input to output, so that the outcome depends on nothing but the orbit: no
iteration that an attacker could start from afar.  Factors within `SLACK` of 1 are left out: a model
in canonical form stays as it is, bit for bit.

What no sample sees has no size that a loss could judge, and a lie may hide in it: see `limits`.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from basil.learning.symmetry.basis import bases
from basil.learning.symmetry.order import places, signature
from basil.learning.symmetry.parts import SLACK, Part, Symmetries, Units

SILENT = 0.25  # the share of a layer's inputs from which on silence is suspicious
FEW = 16  # incoming weights: of fewer, the middle half can vanish while the unit does not


def typical(rows: Tensor) -> Tensor:
    """The size of each row [unit, weight]: the mean of the middle half of its |w|.

    The largest, where that is 0 or the weights are few.
    """
    sizes, count = rows.abs(), rows.shape[1]
    largest = sizes.amax(1)
    if count < FEW:
        return largest
    first, last = count // 4, count - count // 4
    if rows.device.type == "cpu":  # a fifth of the time of torch's
        split = torch.from_numpy(np.partition(sizes.numpy(), (first, last - 1), axis=1))
    else:
        split = sizes.sort(dim=1).values
    middle = split[:, first:last].mean(1)
    return torch.where(middle > 0, middle, largest)


class Canonical:
    """The canonical form of models of one network; x⁰ says how large weights should be."""

    def __init__(self, symmetries: Symmetries, initial: Tensor) -> None:
        self.symmetries = symmetries
        self._targets = []
        for units in symmetries.scaled:
            size = float(typical(_rows(units, initial)).mean())
            fan_in = units.gauge.before * units.gauge.after
            self._targets.append(size if size > 0 else fan_in**-0.5)
        self._bounded = _bounded(symmetries, self._targets)
        self._signatures = [signature(units, initial) for units in symmetries.ordered]
        self._bases = bases(symmetries.pairs, initial)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Canonical)
            and (self.symmetries, self._targets) == (other.symmetries, other._targets)
            and self._bases == other._bases
            and all(map(torch.equal, self._signatures, other._signatures))
        )

    def __hash__(self) -> int:
        return hash((self.symmetries, tuple(self._targets)))

    def __call__(self, model: Tensor) -> Tensor:
        """A new vector; the same function."""
        vector = model.clone()
        self._scale(vector)
        for units, ours in zip(self.symmetries.ordered, self._signatures, strict=True):
            order = places(ours, signature(units, vector))
            if order is not None:
                units.permute(vector, order)
        self._straighten(vector)
        return vector

    def settled(self, model: Tensor) -> Tensor:
        """The same for a model that was in this form and took a step: no step changes an order.

        In operations that never look at a value: it may be part of a CUDA graph.
        """
        vector = model.clone()
        self._scale(vector)
        self._straighten(vector)
        return vector

    def _scale(self, vector: Tensor) -> None:
        for units, target in zip(self.symmetries.scaled, self._targets, strict=True):
            sizes = typical(_rows(units, vector))
            factors = target / sizes
            # A unit of nothing but zeros has no size; what is not finite is refused by its score.
            near = (factors - 1).abs() < SLACK
            factors = torch.where(near | (sizes == 0), 1.0, factors)
            units.scale(vector, factors)

    def _straighten(self, vector: Tensor) -> None:
        for some in self._bases:
            some.straighten(vector)

    def limits(self, gradient: Tensor) -> Tensor:
        """How large each weight may be, after a step along this gradient.

        What reads a unit that is never active has a gradient of 0.  No loss judges such weights: a
        Byzantine node could make them as large as it likes, until they decide what is typical.  So
        where more than a quarter of what a layer reads is silent, weights that
        read it may be no larger than is typical; all others may be of any size.
        """
        pieces, at = [], 0
        for part, witness, target in self._bounded:
            if witness is None:
                seen = part.of(gradient).abs().amax(0, keepdim=True) > 0
            else:  # the same, and no sum over all that reads a unit
                seen = witness.of(gradient) != 0
            free = seen | (seen.float().mean() >= 1 - SILENT)
            most = torch.where(free, torch.inf, target).expand(part.before, part.units, part.after)
            pieces += [gradient.new_full((part.start - at,), torch.inf), most.flatten()]
            at = part.start + part.before * part.units * part.after
        return torch.cat([*pieces, gradient.new_full((len(gradient) - at,), torch.inf)])


def _bounded(
    symmetries: Symmetries, targets: Sequence[float]
) -> list[tuple[Part, Part | None, float]]:
    """Weights by which units are measured, as [reader, unit, weight] of the units that they read.

    With each a parameter of those units that has a gradient if they are active: a bias.  Where they
    are inputs there is none.  (Not embeddings: a word that is not in one batch is in another.)
    """
    found = []
    for units, target in zip(symmetries.scaled, targets, strict=True):
        gauge = units.gauge
        if gauge.before > 1 or gauge.width:
            continue
        part, witness = Part(gauge.start, gauge.units, gauge.after, 1), None
        for other in symmetries.scaled:
            biases = [make for make in other.makes[1:] if make.before == make.after == 1]
            for read in other.reads:
                if read.start == gauge.start and not read.width and biases:
                    part, witness = read, biases[0]
        found.append((part, witness, target))
    return sorted(found, key=lambda entry: entry[0].start)


def _rows(units: Units, vector: Tensor) -> Tensor:
    """What measures each unit; where units are scaled together, all of it as one row."""
    rows = units.gauge.rows(vector)
    return rows.reshape(1, -1) if units.whole else rows
