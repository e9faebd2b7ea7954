"""Attacks on rules that choose by loss: be chosen first, do harm second.

A node that compares losses on one mini-batch cannot see a difference smaller than that batch's
noise.  These attacks stay below it and lean on one coordinate, all liars on the same one, so that
what each turn adds is not averaged out by the next.
"""

from torch import Tensor

from basil.attack.check import at_least, positive, slot_of
from basil.attack.view import View, declares


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


@declares(trains=True, effort="effort")
def rank_seeking(
    view: View, *, effort: int = 4, scale: float = 1.0, coordinate: int = -1
) -> Tensor:
    """x + λ ‖x − x̄‖/m e_c, with x trained m times as long as an honest model: chosen, then harmful.

    No publication's: the liar does m honest turns' work in one (on its own data; it takes their
    time), so that its loss is lower than its rivals', and spends the length of one of them on the
    shift: as far as one mini-batch moves a model, and so about what one cannot tell from noise.
    """
    at_least("effort", effort, 1)
    positive("scale", scale)
    slot_of(coordinate, view.layout)
    return _leaning(view.honest, view.honest - view.chosen, scale / effort, coordinate)


def _leaning(model: Tensor, update: Tensor, scale: float, coordinate: int) -> Tensor:
    lie = model.clone()
    lie[coordinate] += scale * update.norm()
    return lie
