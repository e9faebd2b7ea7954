"""One form for all models that are the same function: the canonical form.

A Byzantine node can change how a model is written down without changing what it computes.  No loss
shows it, and the next gradient step, which acts on weights, goes wrong.  So every model is brought
to one member of its orbit before anybody trains from it or compares it.

*Scale.*  Each hidden unit is multiplied so that the typical size of its incoming weights is λ times
what it was, on average over its layer, in x⁰; what reads it is divided.  λ is the same for all
layers and the output's own: a network that has grown has grown alike everywhere, as training
without this form grows it.  (With λ = 1 all growth would be the output layer's, and steps of the
others would become ever longer in proportion.)  Typical is the mean of the middle half of |w|.  An
incoming weight from a unit that is never active is seen by no loss: a norm moves with the first
such weight, this mean stays bounded while they are less than a quarter.  And a step hardly moves
it.  A median would move by as much as one weight does, which would lengthen every turn and hide in
it what a rule could see.
*Order.*  Each hidden unit stands in the place of the one in x⁰ that it resembles.
*Basis.*  The incoming rows A of a pair are replaced by those nearest to x⁰'s of all A' with the
same row space and A'A'ᵀ = δI; what reads them follows.

In closed form, from input to output, so that the outcome depends on nothing but the orbit: no
iteration that an attacker could start from afar.  Factors within `SLACK` of 1 are left out: a model
in canonical form stays as it is, bit for bit.

What no sample sees has no size that a loss could judge, and a lie may hide in it: see `limits`.
And what cancels has none: units that compute the same, or nearly so, with opposed outgoing weights
can be as loud as one likes, and each gets a gradient of that size.  Of two that are the same one
begins anew (copies.py).  And a unit that is read with weights `LOUD` times as large as any in x⁰,
by the layer's median, is made softer.  That may change the function, and then the loss shows it.
Not so where a normalisation follows what reads them: honest training makes some channels of a
narrow layer louder than that.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from basil.learning.symmetry.arrays import (
    Array,
    as_array,
    copy,
    largest,
    quiet,
    reciprocal,
    times,
    where,
    zeros,
)
from basil.learning.symmetry.basis import bases
from basil.learning.symmetry.copies import has_copies, separable, without_copies
from basil.learning.symmetry.order import places, signature
from basil.learning.symmetry.parts import SLACK, Part, Symmetries, Units
from basil.learning.symmetry.typical import typical

SILENT = 0.25  # the share of a layer's inputs from which on silence is suspicious
LOUD = 3.0  # times the largest outgoing weights of x⁰, by the layer's median
SOFT = 0.8  # of that is left to such a unit: it stays as it is when the form is taken again


class Canonical:
    """The canonical form of models of one network; x⁰ says how large weights should be."""

    def __init__(self, symmetries: Symmetries, initial: Tensor) -> None:
        self.symmetries = symmetries
        self._growth = Growth.of(symmetries)
        self._bounded = _bounded(symmetries)
        # In x⁰: how large weights are that make each layer's units, and then the output's.
        self.sizes = initial.new_zeros(len(symmetries.scaled) + 1)
        for i, units in enumerate(symmetries.scaled):
            size = typical(units.measured(initial)).mean()
            fan_in = units.gauge.before * units.gauge.after
            self.sizes[i] = torch.where(size > 0, size, fan_in**-0.5)
        self.sizes[-1] = self._normal(initial, self.sizes)[1]
        normalised = {part.start for u in symmetries.scaled if not u.reads for part in u.makes}
        loudest = [_loudest(units, initial, normalised) for units in symmetries.scaled]
        self._loudest = initial.new_tensor(loudest)
        self._initial = initial
        self._signatures = [signature(units, initial) for units in symmetries.ordered]
        self._separable = separable(symmetries, initial)
        self._bases = bases(symmetries.pairs, initial)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Canonical)
            and self.alike(other)
            and all(map(torch.equal, self.measures, other.measures))
        )

    def __hash__(self) -> int:
        return hash(self.symmetries)

    def alike(self, other: "Canonical | None") -> bool:
        """Whether it is the same for models of the other, with its `sizes` and `measures`."""
        return (
            other is not None
            and self.symmetries == other.symmetries
            and self._bases == other._bases
            and self._separable == other._separable
        )

    @property
    def measures(self) -> tuple[Tensor, ...]:
        """All that a form takes from x⁰."""
        return self.sizes, self._loudest, self._initial, *self._signatures

    def __call__(self, model: Tensor) -> Tensor:
        """A new vector; the same function, but for what is too loud, or nearly a copy."""
        return self.form(model, *self.measures)

    def form(
        self, model: Tensor, sizes: Tensor, loudest: Tensor, initial: Tensor, *signatures: Tensor
    ) -> Tensor:
        """The form of a model by these `measures`."""
        vector = self._scaled(model, sizes)
        self._arrange(vector, signatures)
        vector = self._without_copies(vector, sizes, initial)
        heard = [
            (units, *_heard(units, vector, most))
            for units, most in zip(self.symmetries.scaled, loudest, strict=True)
        ]
        looks, above = vector.device.type == "cpu", ((size > most).any() for _, size, most in heard)
        if heard and (not looks or any(above)):
            softer, too_loud = vector.clone(), []
            for units, size, most in heard:
                loud = (size > most) & (most > 0)
                units.read(softer, torch.where(loud, size / (SOFT * most), 1.0))
                too_loud.append(loud.any())
            again = self._scaled(softer, sizes)
            self._arrange(again, signatures)
            vector = torch.where(torch.stack(too_loud).any(), again, vector)
        return vector

    def _without_copies(self, vector: Tensor, sizes: Tensor, initial: Tensor) -> Tensor:
        """What begins anew is as large as x⁰'s is; and what reads a layer is so without copies."""
        layers = self._separable
        if vector.device.type == "cpu":
            layers = tuple(units for units in layers if has_copies(units, vector, initial))
        if not layers:
            return vector
        changed = vector.clone()
        copied = [without_copies(units, changed, initial) for units in layers]
        again = self._scaled(changed, sizes)
        self._straighten(again)
        return torch.where(torch.stack(copied).any(), again, vector)

    def _arrange(self, vector: Tensor, signatures: Sequence[Tensor]) -> None:
        """In place: units in x⁰'s order, and pairs in its basis."""
        for units, ours in zip(self.symmetries.ordered, signatures, strict=True):
            order = places(ours, signature(units, vector))
            if order is not None:
                units.permute(vector, order)
        self._straighten(vector)

    def settled(self, model: Tensor, sizes: Tensor) -> Tensor:
        """The same for a model that was in this form and took a step.

        No step changes an order, or makes a unit too loud that was not nearly so.
        In operations that never look at a value: it may be part of a CUDA graph.
        """
        vector = self._scaled(model, sizes)
        self._straighten(vector)
        return vector

    def _scaled(self, model: Tensor, sizes: Tensor) -> Tensor:
        vector = model.clone()
        if self.symmetries.scaled:
            with quiet(vector):
                self._scale(as_array(vector), as_array(sizes))
        return vector

    def _scale(self, vector: Array, sizes: Array) -> None:
        """In place.  (Powers are torch's on a CPU, too: numpy's may differ in the last bit.)"""
        factors, output = self._normal(vector, sizes)
        growth = torch.as_tensor(_grown(output, sizes[-1:])) ** (1 / self._growth.layers)
        scaled = zip(self.symmetries.scaled, factors, self._growth.powers, strict=True)
        for units, factor, power in scaled:
            # A unit of nothing but zeros has no size; what is not finite is refused by its score.
            grown = where(factor == 0, 1.0, times(factor, growth**power))
            units.scale(vector, where(abs(grown - 1) < SLACK, 1.0, grown))

    def _normal(self, model: Array, sizes: Array) -> tuple[list[Array], Array]:
        """By how much to scale all units to the size of x⁰'s (0: not at all).

        And how large the output's weights are then: there is all that has grown.
        """
        normal, factors = copy(model), []
        for i, units in enumerate(self.symmetries.scaled):
            size = typical(units.measured(normal))
            nothing = size == 0
            factor = where(nothing, 0.0, reciprocal(size) * sizes[i])
            units.read(normal, where(nothing, 1.0, factor))
            factors.append(factor)
        return factors, self._growth.size(normal)

    def _straighten(self, vector: Tensor) -> None:
        for some in self._bases:
            some.straighten(vector)

    def limited(self, model: Tensor, gradient: Tensor, sizes: Tensor) -> Tensor:
        """A model whose gradient this is, with no weight beyond its limit."""
        seen = (_seen(part, witness, as_array(gradient)) for part, witness, _ in self._bounded)
        if model.device.type == "cpu" and all(units.mean() >= 1 - SILENT for units in seen):
            return model
        most = self.limits(model, gradient, sizes)
        return model.clamp(-most, most)

    def limits(self, model: Tensor, gradient: Tensor, sizes: Tensor) -> Tensor:
        """How large each weight of a model may be, after a step along this gradient.

        What reads a unit that is never active has a gradient of 0.  No loss judges such weights: a
        Byzantine node could make them as large as it likes, until they decide what is typical.  So
        where more than a quarter of what a layer reads is silent, weights that
        read it may be no larger than is typical; all others may be of any size.
        """
        pieces, at, growth = [], 0, _grown(self._growth.size(model), sizes[-1:])
        for part, witness, layer in self._bounded:
            seen = _seen(part, witness, gradient)
            free = seen | (seen.float().mean() >= 1 - SILENT)
            most = torch.where(free, torch.inf, growth * sizes[layer]).expand(
                part.before, part.units, part.after
            )
            pieces += [gradient.new_full((part.start - at,), torch.inf), most.flatten()]
            at = part.start + part.before * part.units * part.after
        return torch.cat([*pieces, gradient.new_full((len(gradient) - at,), torch.inf)])


@dataclass(frozen=True)
class Growth:
    """How layers grow together: λ^power times the units of each, and the output λ times as large.

    Power: how many layers that lead to the output there are up to these units.  What is normalised
    on its way (weights before BatchNorm) leads nowhere: no output sees its size.
    """

    powers: tuple[int, ...]
    layers: int  # the output's weights included
    output: Part | None  # the last that reads units and makes none

    @classmethod
    def of(cls, symmetries: Symmetries) -> "Growth":
        makers = [units.makes for units in symmetries.scaled]
        makers += [pair.makes + pair.meets for pair in symmetries.pairs]
        made = {part.start for parts in makers for part in parts}
        read = [part for units in symmetries.scaled for part in units.reads]
        ends = [part for part in read if part.start not in made]
        output = max(ends, key=lambda part: part.start, default=None)
        leading = {output and output.start}
        leads = []
        for units in reversed(symmetries.scaled):
            leads.append(not leading.isdisjoint(part.start for part in units.reads))
            leading.update(part.start for part in units.makes if leads[-1])
        powers: list[int] = []
        reached: dict[int, int] = {}  # the power of what is read, by where its readers start
        for units, more in zip(symmetries.scaled, reversed(leads), strict=True):
            powers.append(max(reached.get(part.start, 0) for part in units.makes) + more)
            for part in units.reads:
                reached[part.start] = max(powers[-1], reached.get(part.start, 0))
        return cls(tuple(powers), 1 + (reached[output.start] if output else 0), output)

    def size(self, vector: Array) -> Array:
        """Of the output's weights, [1]; 0 where there are none."""
        if self.output is None:
            return zeros(vector[:1])
        return typical(self.output.of(vector).reshape(1, -1))


def _grown(output: Array, first: Array) -> Array:
    """How many times as large as in x⁰; 1 where either is 0."""
    return where((output == 0) | (first == 0), 1.0, output / first)


def _bounded(symmetries: Symmetries) -> list[tuple[Part, Part | None, int]]:
    """Weights by which units are measured, as [reader, unit, weight] of the units that they read.

    With each a parameter of those units that has a gradient if they are active: a bias.  Where they
    are inputs there is none.  (Not embeddings: a word that is not in one batch is in another.)
    And the number of the units.
    """
    found = []
    for number, units in enumerate(symmetries.scaled):
        gauge = units.gauge
        if gauge.before > 1 or gauge.width:
            continue
        part, witness = Part(gauge.start, gauge.units, gauge.after, 1), None
        for other in symmetries.scaled:
            biases = [make for make in other.makes[1:] if make.before == make.after == 1]
            for read in other.reads:
                if read.start == gauge.start and not read.width and biases:
                    part, witness = read, biases[0]
        found.append((part, witness, number))
    return sorted(found, key=lambda entry: entry[0].start)


def _seen(part: Part, witness: Part | None, gradient: Array) -> Array:
    """Which units some sample sees, [(1,) unit, 1]."""
    if witness is None:
        return largest(abs(part.of(gradient)), 0) > 0
    return witness.of(gradient) != 0  # the same, and no sum over all that reads a unit


def _loudest(units: Units, initial: Tensor, normalised: Collection[int]) -> float:
    """How loud a unit may be, in medians of its layer; as loud as it likes before a normalisation.

    normalised: where weights start whose size no output sees.
    """
    sizes = _loudness(units, initial)
    usual = _median(sizes)
    bounded = usual > 0 and not all(part.start in normalised for part in units.reads)
    return LOUD * float(sizes.max() / usual) if bounded else torch.inf


def _heard(units: Units, form: Tensor, loudest: Tensor) -> tuple[Tensor, Tensor]:
    """How loud each unit is, and how loud one may be."""
    sizes = _loudness(units, form)
    return sizes, loudest * _median(sizes)


def _loudness(units: Units, vector: Tensor) -> Tensor:
    """Of each unit: how large the weights are that read it, all together."""
    squares: list[Tensor] = [part.rows(vector).square().sum(1) for part in units.reads]
    if len(squares) == 1:
        return squares[0].sqrt()
    return torch.stack(squares).sum(0).sqrt() if squares else vector.new_zeros(units.size)


def _median(sizes: Tensor) -> Tensor:
    """(By `kthvalue`, which a CUDA graph can hold.)"""
    return sizes.kthvalue((len(sizes) + 1) // 2).values
