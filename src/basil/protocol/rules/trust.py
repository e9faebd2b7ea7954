"""Credit for who has earned it, and no further in a lap than one could have gone oneself."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from basil.errors import UserError
from basil.learning.promises import chosen, tensor_of
from basil.protocol.requests import Combine, Score
from basil.protocol.rules.contract import Candidates, Choice, Deliberation
from basil.protocol.rules.freshest import non_negative
from basil.protocol.rules.noise import excess
from basil.protocol.rules.standing import in_good_standing

KEPT = 0.9  # what a turn's mean square counts a round later


def trust(
    candidates: Candidates,
    *,
    z: float = 1.0,
    doubt: float = 1.0,
    memory: float = 0.98,
    credit: float = 1.0,
    learnt: float = 0.1,
    far: float = 2.0,
    c: float = 1.0,
) -> Deliberation:
    """`standing` with credit, and what it chooses is pulled towards one's own last model.

    Credit: the model of a sender that stands at −v may lie above the lowest by z + credit · v
    standard errors, by z + 3 at most; but by no more than z before the lowest loss is below 1 −
    `learnt` times that of the model which this node began with, nor from a sender whose models have
    been more than `far` above the lowest on average (over the rounds, each cut off at 3).

    Region: y = clamp(x_j, x_i − c·N·s, x_i + c·N·s) in every coordinate: x_j is the chosen model,
    x_i this node's last, N the turns of a lap, and s the root mean square of this node's own turns
    in that layer (of the last rounds, weights 0.9^a).  y is scored: if its losses are as near to
    the lowest as x_j's have to be, the node goes on from y, else from x_j.  Before its first turn a
    node has no region.  (No publication's.)

    Why credit: the lowest of S losses is low by chance, too.  Of ten equally good models the
    nearest is more than a standard error above it in most turns, and its step is thrown away.  Who
    has been better than others for long is believed; what that is misused for costs as much
    standing.  Before anything is learnt all losses are within noise, some liars stand well by luck,
    and on credit they would keep it so.  However well one stands: what is obviously bad (a sign
    flip after ten honest rounds) is not taken.  And where liars stand in a row, the older models
    are liars', too: next to them some stand well, but all are far above the lowest.

    Why a region: colluders that lean on one coordinate, each within the noise of a batch, move it
    in a lap as far as b such shifts reach; N honest turns in random directions move it by √N · s,
    and N in the same direction by N · s.  s is made of one's own turns, which nobody else can
    inflate.  What lies outside and is worth something on this node's samples may stay, what is not
    is taken back.  (To go on from x_i instead starves a node: whoever falls behind has a region
    around an old model, refuses what is new, and falls behind further.)

    Limits: a drift of less than c·N·s in a lap passes, and one that comes with a gain
    (docs/rules.md says what pushes back).  With a small c honest progress is cut off, too.  What
    harms no model on this node's data earns credit.  It costs S + 2 evaluations a turn and a second
    model in a node's memory.
    """
    non_negative(credit, "credit")
    non_negative(far, "far")
    if not 0 <= learnt < 1:
        raise UserError(f"scheme.learnt = {learnt}: it must be from 0 to below 1")
    if not c > 0:
        raise UserError(f"scheme.c = {c}: it must be above 0")
    weighed = yield from in_good_standing(candidates, z, doubt, memory, credit, learnt, far)
    models, own = [*candidates.models, candidates.own], candidates.own
    selected = chosen(models, weighed.number)
    before: dict[str, Tensor] | None = candidates.state.get("trust")
    if before is None:
        sums = own.new_zeros(len(candidates.layers) + 1)
        state = {"start": tensor_of(selected), "sums": sums}
    else:
        sizes = tuple(layer.stop - layer.start for layer in candidates.layers)
        pull = partial(_pulled, sizes=sizes, reach=c * candidates.lap)
        args = weighed.number, own, before["start"], before["sums"], *models
        model, pulled, sums = yield Combine(pull, args=args)
        scored = yield Score(pulled, candidates.batch)
        args = model, pulled, scored.wait(), weighed.lowest, weighed.tolerance
        state = {"start": (yield Combine(_if_good, args=args)), "sums": sums}
    remembered = {"standing": weighed.records, "began": weighed.began, "trust": state}
    return Choice(state["start"], selected, remembered)


def _pulled(
    number: Tensor,
    own: Tensor,
    start: Tensor,
    sums: Tensor,
    *models: Tensor,
    sizes: tuple[int, ...],
    reach: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The model of that number; pulled into the region; and the sums that this is made of.

    `sums`: Σ 0.9^a of a turn's mean square in each layer, and last Σ 0.9^a.
    """
    turn = mean_squares(own - start, sizes)
    sums = KEPT * sums + torch.cat([turn, turn.new_ones(1)])
    width = region(sums[:-1] / sums[-1], sizes, reach)
    model = torch.stack(models).index_select(0, number.view(1))[0]
    pulled = torch.minimum(torch.maximum(model, own - width), own + width)
    # Around a model that has got out of hand there is no region: it begins anew.
    sane = (own.sum() + sums.sum()).isfinite()
    return model, torch.where(sane, pulled, model), torch.where(sane, sums, 0.0)


def mean_squares(turn: Tensor, sizes: Sequence[int]) -> Tensor:
    """Of what a turn changes, for each layer."""
    return torch.stack([part.square().mean() for part in turn.split(list(sizes))])


def region(squares: Tensor, sizes: Sequence[int], reach: float) -> Tensor:
    """reach · s for every coordinate, with s the root of its layer's mean square."""
    widths = zip(reach * squares.sqrt(), sizes, strict=True)
    return torch.cat([width.expand(size) for width, size in widths])


def _if_good(
    model: Tensor, pulled: Tensor, losses: Tensor, lowest: Tensor, tolerance: Tensor
) -> Tensor:
    return torch.where(excess(losses, lowest) <= tolerance, pulled, model)
