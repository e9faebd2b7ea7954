"""Attacks by nodes that know the rule of those they send to, and its constants.

Two things hold a lie back.  A rule that compares losses goes on from a model only if one batch
cannot tell it from the best: within z standard errors of the paired difference.  And a rule that
counts turns prefers models that go back to other stored ones, by turns that look like its own: who
knows that sends some that seem to.  Who knows the constants goes just as far, all the same way:
what each turn adds is then not averaged out by the next, and the sum over a lap is what hurts.
A lap's worth is N·s in a coordinate, with N the turns of a lap and s the root mean square of one's
own step in that layer: as far as all its turns would go in one direction.

A Byzantine node knows neither its receiver's batch nor its steps.  It has its own, drawn in the
same way.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from basil.attack.check import at_least, not_negative, one_of, positive, slot_of
from basil.attack.omniscient import mean_of_benign
from basil.attack.view import Trial, View, declares
from basil.protocol.requests import ScoreAll
from basil.protocol.rules.excess import excess, first

EASE = 0.5  # how much shorter each shift is than the one tried before it


@declares(trains=True)
def brink(
    view: View,
    *,
    z: float = 2.0,
    c: float = 1.0,
    direction: str = "coordinate",
    tries: int = 4,
    coordinate: int = -1,
) -> Trial:
    """x + 2^−i u with the smallest i < `tries` that a batch cannot tell from x; if none, x itself.

    x is the honest model, and u a shift of up to c·N·s in every coordinate:
    "coordinate": (c·N·s) e_c, by default on the last bias; "signs": ± c·N·s in every coordinate,
    with signs drawn once for all; "ascent": −c·N (x − x̄), its own update reversed, cut off
    there.  A batch tells if mean(d) > z · sd(d) / √B, with d the difference of the losses on
    each sample.  It is one of the node's own samples that x was not just trained on.

    No publication's: `freshest` and `trust` invite it, since they let pass what is within z of
    the best.  Trying takes the time of `tries` + 1 evaluations.

    Limits: where losses are nearly linear, the noise shrinks with the shift as the harm does.  Then
    a batch that tells the longest shift tells all of them, and the node is honest for this turn.
    """
    not_negative("z", z)
    positive("c", c)
    one_of("direction", direction, DIRECTIONS)
    at_least("tries", tries, 1)
    slot_of(coordinate, view.layout)
    shift = DIRECTIONS[direction](view, c, coordinate)
    models = [view.honest + EASE**i * shift for i in range(tries)] + [view.honest]
    losses = (yield ScoreAll(torch.stack(models), view.spare())).wait()
    unseen = excess(losses[:-1], losses[-1]) <= z
    # On a GPU the host never learns which one it is.
    return torch.stack(models).index_select(0, first(unseen).view(1)).view(-1)


@declares(omniscient=True, trains=True)
def edge(view: View, *, c: float = 1.0) -> Tensor:
    """x_j ± c·N·s in every coordinate: a lap of turns away from what receiver j sent.

    x_j is what the next benign receiver sent last; the signs are drawn once for all.

    No publication's: against a rule that trusts what is near its own model.  There every coordinate
    of what j goes on from is as far off as it can be, and each sender's successor starts where the
    last one was pushed.  Without care for the loss: a rule that scores sees it.
    """
    positive("c", c)
    benign = view.benign
    assert benign is not None
    victim = next((benign[j] for j in view.receivers if j in benign), None)
    if victim is None:  # among Byzantine nodes
        return view.honest
    return victim + _half_width(view, c) * _signs(view)


@declares(omniscient=True, trains=True)
def stall(view: View, *, kin: float = 2.0) -> Tensor:
    """μ + (‖x − x̄‖ / kin) u: the mean of what all benign nodes sent last, and a random direction u.

    x is the honest model, trained from x̄.  Nothing is wrong with the lie but its age.  A mean of
    many models has a lower loss than any one of them, and half of a lap is missing from it: each
    time that it is chosen, so much work is lost.  No publication's: it is ALIE's mean, as a rule
    that counts turns by distances (`trust`) would have it.  Two such models are √2 / kin of a turn
    apart, as if the second had gone on from the first, and in a random direction so little does
    next to no harm.
    """
    at_least("kin", kin, 1)
    aside = torch.randn(view.honest.shape, generator=view.generator, device=view.honest.device)
    aside *= (view.honest - view.chosen).norm() / (kin * aside.norm())
    return mean_of_benign(view) + aside


@declares(trains=True)
def creep(view: View, *, kin: float = 2.0, coordinate: int = -1) -> Tensor:
    """x, but x̄_c + kin · max|x − x̄| in coordinate c: honest work, and one weight ever further off.

    x is the honest model, trained from x̄; c is by default the last bias.  No publication's: it is
    `drift` for a rule that counts turns by their length and their largest coordinate (`trust`).
    The lie holds the work of an honest turn, so that all else about it is right.
    """
    positive("kin", kin)
    slot_of(coordinate, view.layout)
    lie = view.honest.clone()
    lie[coordinate] = view.chosen[coordinate] + kin * (view.honest - view.chosen).abs().amax()
    return lie


def _half_width(view: View, c: float) -> Tensor:
    """c·N·s for every coordinate, with s from this node's own step."""
    step = view.honest - view.chosen
    widths = [
        (c * view.lap * step[layer].square().mean().sqrt()).expand(layer.stop - layer.start)
        for layer in view.layout.layers
    ]
    return torch.cat(widths)


def _signs(view: View) -> Tensor:
    """The same for all, and in every round."""
    signs: Tensor | None = view.shared.get("signs")
    if signs is None:
        drawn = 2 * view.common.integers(2, size=view.layout.size) - 1
        signs = view.shared["signs"] = torch.from_numpy(drawn).to(view.honest)
    return signs


def _along_one(view: View, c: float, coordinate: int) -> Tensor:
    width = _half_width(view, c)
    shift = torch.zeros_like(width)
    shift[coordinate] = width[coordinate]
    return shift


def _along_signs(view: View, c: float, *_: Any) -> Tensor:
    return _half_width(view, c) * _signs(view)


def _uphill(view: View, c: float, *_: Any) -> Tensor:
    width = _half_width(view, c)
    return (c * view.lap * (view.chosen - view.honest)).clamp(-width, width)


DIRECTIONS: dict[str, Callable[[View, float, int], Tensor]] = {
    "coordinate": _along_one,
    "signs": _along_signs,
    "ascent": _uphill,
}
