"""Lies that keep the function: the same outputs, other weights.

A node that chooses by loss judges what a model computes.  Then it takes a gradient step, which
acts on how the model is written down.  A layer times a, and the next divided by a, changes no
output; the gradient of the first is a times smaller, its weights are a times larger, and so the
step there is a² times too short, in the other layer a² times too long.  Gradient steps do not push
back: what makes a unit and what reads it keep the difference of their squared norms.  So small
factors add up from turn to turn (docs/research/symmetry.md).

The last three know the canonical form, and look for what it does not cover.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from basil import rng
from basil.attack.check import at_least, not_negative, one_of, positive, share_of
from basil.attack.selection import harder
from basil.attack.view import View, declares
from basil.errors import UserError
from basil.learning.promises import sent
from basil.learning.symmetry import Part, Units

ALL = 99  # as a layer's number


@declares(trains=True, work=harder)
def rescale(
    view: View,
    *,
    factor: float = 2.0,
    layer: int = ALL,
    by: str = "layer",
    share: float = 1.0,
    ramp: int = 0,
    receivers: float = 1.0,
    effort: int = 1,
) -> Tensor | Mapping[int, Tensor]:
    """Hidden units times a, what reads them divided by a: no output changes, the next step does.

    `layer`: the number of a set of hidden units, from input to output (negative: from the end; 99:
    each second one).  `by`: "layer", all units by the same factor; "units", half of a `share` of
    them times a and the other half divided by a, so that norms of layers hardly change; "basis", R
    between two linear maps, with singular values from 1/a to a: low-rank pairs, attention.  `ramp`:
    rounds over which a grows from 1 to `factor`; 0: at once.  `receivers`: the share of receivers
    that get it, the others get the honest model.  `effort`: as for `rank-seeking`, a better model
    to begin with.  No publication's; the symmetry is well known (Neyshabur, Salakhutdinov and
    Srebro 2015; Dinh et al. 2017).
    """
    positive("factor", factor)
    one_of("by", by, ("layer", "units", "basis"))
    share_of("share", share)
    share_of("receivers", receivers)
    at_least("ramp", ramp, 0)
    at_least("effort", effort, 1)
    a = 1 + (factor - 1) * min(1.0, view.round / ramp) if ramp else factor
    lie = view.honest.clone()
    if by == "basis":
        for pair in _layers(view.symmetries.pairs, layer, every=1):
            R = _basis(view, pair.name, pair.size, a).to(lie.device)
            pair.transform(lie, R, torch.linalg.inv(R))
    else:
        for units in _layers(view.symmetries.scaled, layer):
            units.scale(lie, _factors(view, units, a, by, share))
    return _to_some(view, lie, receivers)


def _basis(view: View, name: str, size: int, a: float) -> Tensor:
    """An invertible matrix with singular values from 1/a to a, for all Byzantine nodes the same."""
    draw = rng.stream(view.seed, "attack", "basis", name).standard_normal((2, size, size))
    left, right = torch.linalg.qr(torch.from_numpy(draw)).Q
    stretch = torch.linspace(-1, 1, size, dtype=torch.float64).mul(math.log(a)).exp()
    R: Tensor = (left * stretch) @ right
    return R


def _factors(view: View, units: Units, a: float, by: str, share: float) -> Tensor:
    if by == "layer" or units.whole:
        return view.honest.new_full((1 if units.whole else units.size,), a)
    factors = view.honest.new_ones(units.size)
    order = sent(torch.from_numpy(_order(view, units)), factors.device)
    half = max(1, int(share * units.size) // 2)
    factors[order[:half]] = a
    factors[order[half : 2 * half]] = 1 / a
    return factors


@declares(trains=True)
def permute(
    view: View, *, share: float = 1.0, receivers: float = 1.0
) -> Tensor | Mapping[int, Tensor]:
    """Hidden units in another order: no output changes, every average with another model does.

    A `share` of each layer's units change places.  Harmless to a node that goes on from one model,
    fatal to one that averages (`basil+`, every scheme on a graph).
    """
    share_of("share", share)
    share_of("receivers", receivers)
    lie = view.honest.clone()
    for units in _layers(view.symmetries.ordered, ALL, every=1):
        moved = _order(view, units)[: max(2, int(share * units.size))]
        order = torch.arange(units.size)
        order[torch.from_numpy(moved)] = torch.from_numpy(moved[[*range(1, len(moved)), 0]])
        units.permute(lie, sent(order, lie.device))
    return _to_some(view, lie, receivers)


@declares(trains=True)
def ballast(view: View, *, weight: float = 100.0, share: float = 0.01, layer: int = -2) -> Tensor:
    """Silences the units that matter least, and makes what reads them heavy: nothing reads zeros.

    Those with the smallest product of incoming and outgoing norm get a bias that keeps them at 0
    and outgoing weights `weight` times as large as is usual.  Aimed at a canonical form that
    measures units by norms: there every unit that reads one is shrunk to make up for weights that
    no output sees.  `share`: of the layer's units.
    """
    positive("weight", weight)
    share_of("share", share)
    (units,) = _layers(view.symmetries.scaled, layer)
    lie = view.honest.clone()
    if not units.reads or len(units.makes) < 2:
        return lie
    few = _weakest(units, lie)[: max(1, int(share * units.size))]
    rows, bias = units.makes[0].rows(lie), units.makes[1].of(lie)
    bias[0, few, 0] = -1 - 100 * rows[few].abs().sum(1)
    for part in units.reads:
        view_of = part.of(lie)
        usual = view_of.abs().mean()
        signs = torch.where(view_of[:, few] < 0, -1.0, 1.0)
        view_of[:, few] = weight * usual * signs
    return lie


@declares(trains=True)
def twins(
    view: View, *, weight: float = 10.0, share: float = 0.01, layer: int = -1, apart: float = 0.0
) -> Tensor:
    """Makes the units that matter least twins of those that matter most, and sets the two at odds.

    The twin's incoming weights are copied; its outgoing weights are −c, and c is added to the
    other's: together as before, each of them `weight` times as heavy as is usual.  Each gets a
    gradient of that size.  (c has either sign: a softmax does not see what is added to all
    classes.)  The canonical form knows two that are the same, and takes c back; so the twin can be
    `apart` from the other, by so many of its lengths and in a direction of its own.
    """
    positive("weight", weight)
    share_of("share", share)
    not_negative("apart", apart)
    (units,) = _layers(view.symmetries.scaled, layer)
    lie = view.honest.clone()
    if not units.reads:
        return lie
    order, count = _weakest(units, lie), max(1, int(share * units.size))
    weak, strong = order[:count], order.flip(0)[:count]
    for part in (*units.makes, *units.squares):
        part.of(lie)[:, weak] = part.of(lie)[:, strong]
    if apart:
        rows = units.makes[0].of(lie)
        noise = rng.torch_stream(view.seed, "attack", "twins", view.node, view.round)
        away = torch.randn(rows[:, weak].shape, generator=noise).to(rows)
        lengths = rows.square().sum((0, 2), keepdim=True).sqrt()[:, weak]
        rows[:, weak] += apart * lengths * away / away.square().sum((0, 2), keepdim=True).sqrt()
    for part in units.reads:
        view_of = part.of(lie)
        drawn = rng.stream(view.seed, "attack", "twins", units.name).choice(
            [-1.0, 1.0], len(view_of)
        )
        signs = sent(torch.from_numpy(drawn).to(lie.dtype), lie.device)
        c = weight * view_of.abs().mean() * signs[:, None, None]
        view_of[:, weak] = -c
        view_of[:, strong] += c
    return lie


@declares(trains=True)
def shift(view: View, *, weight: float = 100.0) -> Tensor:
    """The same vector added to the weights of every class: a softmax sees no difference.

    `weight` times as large as the last layer's weights are on average.  Gradients do not change
    either: harmless, but for what rounding makes of it, and to a rule that measures that layer.
    """
    positive("weight", weight)
    lie = view.honest.clone()
    for layer in view.layout.layers[-1:]:
        slots = [s for s in view.layout.slots if s.start >= layer.start and len(s.shape) == 2]
        for slot in slots:
            part = lie[slot.start : slot.stop]
            part += weight * part.abs().mean()
    return lie


def _layers(found: Sequence[Any], number: int, every: int = 2) -> Sequence[Any]:
    """One of the network's symmetries, or all of them."""
    if not found:
        raise UserError(
            "attack.name: no such symmetry was found in this network, so there is nothing to change"
        )
    if number == ALL:
        return found[::every]
    if not -len(found) <= number < len(found):
        raise UserError(
            f"attack.layer = {number}: there are {len(found)} such layers, 0 to {len(found) - 1}"
        )
    return [found[number]]


def _order(view: View, units: Units) -> Any:
    """A permutation of these units, the same for all Byzantine nodes and rounds."""
    return rng.stream(view.seed, "attack", "units", units.name).permutation(units.size)


def _weakest(units: Units, vector: Tensor) -> Tensor:
    """Units by the product of incoming and outgoing norm, the smallest first."""

    def norms(parts: Sequence[Part]) -> Tensor:
        entries = torch.cat([part.rows(vector) for part in parts], 1)
        sizes: Tensor = torch.linalg.vector_norm(entries, dim=1)
        return sizes

    order: Tensor = (norms(units.makes[:1]) * norms(units.reads)).argsort()
    return order


def _to_some(view: View, lie: Tensor, share: float) -> Tensor | Mapping[int, Tensor]:
    if share == 1:
        return lie
    lied_to = set(view.rng.permutation(view.receivers)[: round(share * len(view.receivers))])
    return {j: lie if j in lied_to else view.honest for j in view.receivers}
