"""Attacks on rules that choose by loss: be chosen first, do harm second.

A node that compares losses on one mini-batch cannot see a difference smaller than that batch's
noise.  These attacks stay below it and lean on one coordinate, all on the same one, so that
what each turn adds is not averaged out by the next.
"""

from typing import Any

from torch import Tensor

from basil.attack.check import at_least, not_negative, positive, slot_of
from basil.attack.view import Bench, Numbers, Stage, View, declares
from basil.learning.pool import Batch


@declares(trains=True)
def drift(view: View, *, scale: float = 1.0, coordinate: int = -1) -> Tensor:
    """x̄ + λ ‖x − x̄‖ e_c: the selected model x̄, an honest step x − x̄ long along one coordinate.

    No publication's: what lowest-loss selection invites.  x̄ has just won the comparison, a model
    that took no step of its own fits a stranger's data better than one that did, and the shift is
    no longer than an honest one.  e_c is by default the last bias.
    """
    positive("scale", scale)
    slot_of(coordinate, view.layout)
    return _leaning(view.chosen, view.honest - view.chosen, scale, coordinate)


def harder(bench: Bench, *, effort: int, **_: Any) -> list[Stage]:
    """The work of several turns in one, on batches of rounds that will never come."""
    node, honest = bench.node, bench.train
    more = [node.draw(bench.round + i * node.rounds) for i in range(1, effort)]
    return [(honest.batches + tuple(b for drawn in more for b in drawn), honest.rate)]


@declares(trains=True, work=harder)
def rank_seeking(
    view: View, *, effort: int = 4, scale: float = 1.0, coordinate: int = -1
) -> Tensor:
    """x + λ ‖x − x̄‖/m e_c, with x trained m times as long as an honest model: chosen, then harmful.

    No publication's: the node does m honest turns' work in one (on its own data; it takes their
    time), so that its loss is lower than its rivals', and spends the length of one of them on the
    shift: as far as one mini-batch moves a model, and so about what one cannot tell from noise.
    """
    at_least("effort", effort, 1)
    positive("scale", scale)
    slot_of(coordinate, view.layout)
    return _leaning(view.honest, view.honest - view.chosen, scale / effort, coordinate)


def _memorising(bench: Bench, *, effort: int, boost: float, unlearn: int, **_: Any) -> list[Stage]:
    """First up the gradient on what nobody else has, then down on what everybody has."""
    honest = bench.train
    if not len(bench.received):  # it was away when data was shared
        return [(honest.batches, honest.rate)]
    size = len(honest.batches[0])
    stages = [(_drawn(bench, bench.received, size, effort), boost * honest.rate)]
    if unlearn and len(bench.private):
        stages.insert(0, (_drawn(bench, bench.private, size, unlearn), -boost * honest.rate))
    return stages


def _drawn(bench: Bench, numbers: Numbers, size: int, count: int) -> tuple[Batch, ...]:
    """All of one size, which is what a turn's scores were computed with: on a GPU it is fixed."""
    again = len(numbers) < size
    return tuple(Batch(bench.rng.choice(numbers, size, replace=again)) for _ in range(count))


@declares(trains=True, work=_memorising, needs_sharing=True)
def overfit_shared(
    view: View,
    *,
    effort: int = 10,
    boost: float = 4.0,
    unlearn: int = 4,
    scale: float = 0.0,
    coordinate: int = -1,
) -> Tensor:
    """Learns by heart what was shared, which all judge models by, and unlearns what was not.

    No publication's: what data sharing adds to choice by loss.  With N nodes, (N − 1) αD of a
    node's samples are known to every Byzantine one.  From x̄ it takes `unlearn` steps *up* the
    gradient on its own samples that it did not share, then `effort` steps down on the shared ones,
    at `boost` times the rate: x.  It sends x + λ ‖x − x̄‖/effort e_c (λ = `scale`; as
    `rank-seeking`).
    """
    at_least("effort", effort, 1)
    positive("boost", boost)
    at_least("unlearn", unlearn, 0)
    not_negative("scale", scale)
    slot_of(coordinate, view.layout)
    return _leaning(view.honest, view.honest - view.chosen, scale / effort, coordinate)


def _leaning(model: Tensor, update: Tensor, scale: float, coordinate: int) -> Tensor:
    lie = model.clone()
    lie[coordinate] += scale * update.norm()
    return lie
