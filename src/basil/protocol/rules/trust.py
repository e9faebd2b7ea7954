"""The model with the most turns in it, of those that one batch cannot tell from the best; and no
further in a lap than one could have gone oneself.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from basil.errors import UserError
from basil.learning.promises import chosen, means_of, stacked, tensor_of
from basil.protocol.requests import Combine, Score
from basil.protocol.rules.contract import Candidates, Choice, Deliberation
from basil.protocol.rules.freshest import non_negative
from basil.protocol.rules.lineage import lineage
from basil.protocol.rules.noise import above_the_lowest, column, excess, first
from basil.protocol.rules.records import MOST, recalled, remembered

KEPT = 0.9  # what a turn's mean square counts a round later


def trust(
    candidates: Candidates,
    *,
    z: float = 2.0,
    kin: float = 2.0,
    memory: float = 0.98,
    learnt: float = 0.1,
    far: float = 2.0,
    c: float = 1.0,
) -> Deliberation:
    """Of the models near the lowest loss the one with most turns in it, pulled towards one's own.

    Near: above the lowest of the stored models by at most τ standard errors of the paired
    difference, and above one's own last model by at most z.  Here τ = z · min(1, (1 − L / L₀) /
    learnt), with L the lowest mean loss and L₀ that of the model which this node began with.  Half
    of τ if the model goes back to no other stored one, or its sender's have been more than `far`
    above the lowest on average: Σ μ^a e / Σ μ^a over the rounds, with μ = `memory` and each excess
    e cut off at 3.

    Turns: a model goes back to the older stored one that is nearest to it, if their distance is at
    most `kin` times the length of this node's own turns; it has one turn more than that one, or as
    many if the distance is below 1/kin of it (`lineage`).  Of equals the nearest predecessor's.  If
    none is near, one's own last model.  Who has gone on from that the round before does not compare
    with it.

    Region: y = clamp(x_j, x_i − c·N·s, x_i + c·N·s) in every coordinate: x_j is the chosen model,
    x_i this node's last, N the turns of a lap, and s the root mean square of this node's own turns
    in that layer (of the last rounds, weights 0.9^a).  y is scored: if its losses are as near to
    the lowest as x_j's have to be, the node goes on from y, else from x_j.  Before its first turn a
    node knows no turn's length, and has neither lines nor a region.  (No publication's.)

    Why turns: what is to be kept is work, and the nearest predecessor may have gone on from an old
    model.  And a liar that offers something better than any single model (the mean of all of them,
    say) is preferred by whoever looks at losses alone; but half of a lap is missing from it.  It
    goes back to nothing that is stored, and so counts no turns.  Who wants to count some must build
    on the line, by no more than a turn's length.

    Why a tolerance that grows: before anything is learnt all losses are within noise, those of a
    lie that undoes what little has been learnt, too.  Then the lowest loss is the safest choice.
    What it throws away is made up for later: of ten equally good models the nearest is more than a
    standard error above the lowest in most turns, by chance.

    Why the average: where liars stand in a row, they count turns among themselves, and each of them
    may be within z of the lowest, in this round.  In every round only who is worse.  It costs no
    more than half of τ, since it makes itself true: whom nobody goes on from, its samples are in no
    model, so a turn on them is long and spoils more of what others know than theirs do.

    Why one's own model: what liars have added up in a lap is bounded by the noise of one batch, not
    by b times that.  Why by z, and not τ: what it lacks is a whole lap, so it must be better beyond
    doubt.  And not twice in a row: what one has trained on one's own samples twice looks better
    there than it is, and after a few rounds better than anything others can send.  Behind a row of
    liars, with one honest model to choose from, nodes stayed alone and fell behind.

    Why a region: colluders that lean on one coordinate, each within the noise of a batch, move it
    in a lap as far as b such shifts reach; N honest turns in random directions move it by √N · s,
    and N in the same direction by N · s.  s is made of one's own turns, which nobody else can
    inflate.  What lies outside and is worth something on this node's samples may stay, what is not
    is taken back.  (To go on from x_i instead starves a node: whoever falls behind has a region
    around an old model, refuses what is new, and falls behind further.)

    Limits: a drift of less than c·N·s in a lap passes, and one that comes with a gain
    (docs/research/trust.md).  With a small c honest progress is cut off, too.  On
    unlike data what is pulled towards one's own model looks better to its owner than it is.  Harm
    within z every round costs nothing.  Where some nodes' turns are more than `kin` times as long
    as others', these see no lines, and choose as with z/2.  Who begins with a trained model, whose
    loss hardly falls, stays with the lowest loss for long, unless `learnt` is smaller.  It costs
    S + 2 evaluations a turn, the distances of S models, and a second model in a node's memory.
    """
    non_negative(z, "z")
    non_negative(far, "far")
    if not kin >= 1:
        raise UserError(f"scheme.kin = {kin}: it must be 1 or more")
    if not 0 < learnt <= 1:
        raise UserError(f"scheme.learnt = {learnt}: it must be above 0, up to 1")
    if not c > 0:
        raise UserError(f"scheme.c = {c}: it must be above 0")
    records, own = recalled(candidates, memory), candidates.own
    models = [*candidates.models, own]
    sizes = tuple(layer.stop - layer.start for layer in candidates.layers)
    before: dict[str, Tensor] | None = candidates.state.get("trust")
    if before is None:
        sums = own.new_zeros(len(sizes) + 1)
        turns = own.new_zeros(len(records), dtype=torch.float64)
        related = turns > 0
    else:
        survey = partial(_surveyed, sizes=sizes, kin=kin)
        args = own, before["start"], before["sums"], *candidates.models
        sums, turns, related = yield Combine(survey, args=args)

    scored = yield Score(own, candidates.batch)
    alone = candidates.state.get("alone")
    if alone is None:
        alone = own.new_zeros((), dtype=torch.bool)
    began = candidates.state.get("began")
    if began is None:
        began = own.new_full((), torch.nan, dtype=torch.float64)
    weigh = partial(_weighed, z=z, memory=memory, learnt=learnt, far=far)
    args = stacked([*candidates.losses, scored]), began, alone, turns, related, *records
    number, lowest, tolerance, judged, began = yield Combine(weigh, args=args)

    selected = chosen(models, number)
    start = tensor_of(selected)
    if before is not None:
        pull = partial(_pulled, sizes=sizes, reach=c * candidates.lap)
        model, pulled = yield Combine(pull, args=(number, own, sums, *models))
        scored = yield Score(pulled, candidates.batch)
        args = model, pulled, scored.wait(), lowest, tolerance
        start = yield Combine(_if_good, args=args)
    state = {
        "records": remembered(candidates, judged),
        "began": began,
        "alone": number == len(records),
        "trust": {"start": start, "sums": sums},
    }
    return Choice(start, selected, state)


def _surveyed(
    own: Tensor, start: Tensor, sums: Tensor, *models: Tensor, sizes: tuple[int, ...], kin: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The sums with one's last turn; the turns in each model, and which go back to others.

    `sums`: Σ 0.9^a of a turn's mean square in each layer, and last Σ 0.9^a.
    """
    turn = mean_squares(own - start, sizes)
    sums = KEPT * sums + torch.cat([turn, turn.new_ones(1)])
    # After a model that has got out of hand one begins anew.
    sums = torch.where((own.sum() + sums.sum()).isfinite(), sums, 0.0)
    squares = sums[:-1] / sums[-1]
    length = sum(n * square for n, square in zip(sizes, squares, strict=True)).sqrt()
    return sums, *lineage(torch.stack(models) - own, length, kin)


def _weighed(
    losses: Tensor,
    began: Tensor,
    alone: Tensor,
    turns: Tensor,
    related: Tensor,
    *known: Tensor,
    z: float,
    memory: float,
    learnt: float,
    far: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The candidate that is chosen, one past the last for oneself; the lowest losses; by how much
    the chosen one may be above them; the records; one's first loss.
    """
    others, own, means = losses[:-1], losses[-1], means_of(losses)
    above, lowest = above_the_lowest(others, means[:-1])
    this = above.clamp(max=MOST)
    records = memory * torch.stack(known) + torch.stack([this, torch.ones_like(this)], 1)
    believed = related & (records[:, 0] <= far * records[:, 1])
    began = torch.where(began.isnan(), means[-1], began)
    gained = (1 - means[:-1].min() / began).nan_to_num(0.0)  # 0 / 0: there was nothing to gain
    tolerances = torch.where(believed, z, z / 2) * (gained / learnt).clamp(0, 1)
    holds = alone | ~means[-1].isfinite() | (excess(others, own) <= z)
    near = (above <= tolerances) & holds & means[:-1].isfinite()
    turns = torch.where(near, turns, -1)
    number = first(near & (turns == turns.max()))
    picked = torch.arange(len(known), device=losses.device) == number
    return number, lowest, column(picked, tolerances), records, began


def _pulled(
    number: Tensor,
    own: Tensor,
    sums: Tensor,
    *models: Tensor,
    sizes: tuple[int, ...],
    reach: float,
) -> tuple[Tensor, Tensor]:
    """The model of that number; and the same pulled into the region."""
    model = torch.stack(models).index_select(0, number.view(1))[0]
    width = region(sums[:-1] / sums[-1], sizes, reach)
    pulled = torch.minimum(torch.maximum(model, own - width), own + width)
    return model, torch.where(sums[-1] > 0, pulled, model)


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
