"""The model with the most turns in it, of those that one batch cannot tell from the best; and no
further in a lap than one could have gone oneself.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from basil.errors import UserError
from basil.learning.promises import Chosen, means_of
from basil.protocol.requests import Combine, Score
from basil.protocol.rules.contract import Candidates, Choice, RuleGenerator
from basil.protocol.rules.excess import above_the_lowest, column, excess, first
from basil.protocol.rules.freshest import non_negative
from basil.protocol.rules.lineage import lineage
from basil.protocol.rules.records import MOST, recalled, remembered
from basil.table import states

RENAMED = {
    "kin": "lineage_ratio",
    "learnt": "learnt_share",
    "far": "excess_limit",
    "c": "region_reach",
}
KEPT = 0.9  # what a turn's mean square counts a round later


@states(renamed=RENAMED, scores_own=True)
def trust(
    candidates: Candidates,
    *,
    z: float = 2.0,
    lineage_ratio: float = 2.0,
    memory: float = 0.98,
    learnt_share: float = 0.1,
    excess_limit: float = 2.0,
    region_reach: float = 1.0,
) -> RuleGenerator:
    """Of the models near the lowest loss the one with most turns in it, pulled towards one's own.

    Near: its losses exceed those of the lowest by at most τ_j, and one's own last model's by at
    most z, both in standard errors of the paired difference.  With L the lowest mean loss and L₀
    that of the model which this node began with,

        τ_j = z · min(1, (1 − L / L₀) / `learnt_share`), and half of it if j goes back to no other
        stored model, or if Σ μ^a e / Σ μ^a > `excess_limit` over the rounds (μ = `memory`, e the
        excess, at most 3).

    Turns: a model goes back to the older stored one that is nearest to it, if that is no farther
    than r = `lineage_ratio` times the length of this node's own turns, and has one turn more than
    that; as many, if it is nearer than 1/r of it (`lineage`).  Of equals the nearest predecessor's.
    If none is near, one's own last model, which is not compared with again in the next round.

    Region: y = clamp(x_j, x_i − c·N·s, x_i + c·N·s) in every coordinate, c = `region_reach`, with
    x_j the chosen model, x_i one's own last, N the turns of a lap and s the root mean square of
    one's own turns in that layer (weights 0.9^a).  If y's losses exceed the lowest by at most τ_j,
    the node goes on from y, else from x_j.  In its first turn it has neither turns nor a region.

    It costs S + 2 evaluations a turn, the distances of S models, and a second model in a node's
    memory.  Reasons and limits: docs/research/trust.md.  (No publication's.)
    """
    non_negative(z, "z")
    non_negative(excess_limit, "excess_limit")
    if not lineage_ratio >= 1:
        raise UserError(f"scheme.lineage_ratio = {lineage_ratio}: it must be 1 or more")
    if not 0 < learnt_share <= 1:
        raise UserError(f"scheme.learnt_share = {learnt_share}: it must be above 0, up to 1")
    if not region_reach > 0:
        raise UserError(f"scheme.region_reach = {region_reach}: it must be above 0")
    own, state, before = candidates.own, candidates.state, candidates.state.get("trust")
    models, records = [*candidates.models, own], recalled(candidates, memory)
    sizes = tuple(layer.stop - layer.start for layer in candidates.layers)
    options = Options(z, memory, learnt_share, excess_limit)
    reach = region_reach * candidates.lap
    judge = partial(_judged, sizes=sizes, ratio=lineage_ratio, reach=reach, options=options)

    scored = yield from candidates.score_own()
    evidence = (
        [*candidates.losses, scored],
        records,
        state["began"] if "began" in state else own.new_full((), torch.nan, dtype=torch.float64),
        state["alone"] if "alone" in state else own.new_zeros((), dtype=torch.bool),
        models,
    )
    turn = () if before is None else (before["start"], before["sums"])
    verdict = Verdict(*(yield Combine(judge, args=(*evidence, *turn), unseen=True)))
    start = verdict.model
    if before is not None:
        scored = yield Score(verdict.pulled, candidates.batch)
        args = [verdict.model, verdict.pulled], scored, verdict.lowest, verdict.tolerance
        start = yield Combine(_if_good, args=args, unseen=True)
    state = {
        "records": remembered(candidates, verdict.records),
        "began": verdict.began,
        "alone": verdict.alone,
        "trust": {"start": start, "sums": verdict.sums},
    }
    return Choice(start, Chosen(models, verdict.number), state)


# What comes out of the work of a Combine is a plain row of tensors; `Verdict` names it.


class Survey(NamedTuple):
    sums: Tensor  # Σ 0.9^a of one's turns' mean square in each layer, and last Σ 0.9^a
    turns: Tensor  # in each candidate
    related: Tensor  # does it go back to another one?


class Options(NamedTuple):
    z: float
    memory: float
    learnt_share: float
    excess_limit: float


class Verdict(NamedTuple):
    number: Tensor  # of the chosen candidate; one past the last for oneself
    alone: Tensor  # is it oneself?
    lowest: Tensor  # the lowest candidate's losses
    tolerance: Tensor  # by how much the chosen one may exceed them
    records: Tensor
    began: Tensor
    sums: Tensor
    model: Tensor  # the chosen one
    pulled: Tensor  # the same in the region


def _judged(
    losses: Tensor,  # [candidates and then one's own, sample]
    records: Tensor,  # of the candidates' senders
    began: Tensor,  # L₀; NaN in the first round
    alone: Tensor,  # has the node gone on from its own model a round ago?
    models: Tensor,  # candidates and then one's own
    *turn: Tensor,  # where one's last turn began, and the sums then; nothing in the first round
    sizes: tuple[int, ...],
    ratio: float,
    reach: float,
    options: Options,
) -> Verdict:
    others, own = models[:-1], models[-1]
    if turn:
        start, sums = turn
        survey = _surveyed(others, own, start, sums, sizes, ratio)
    else:
        none = own.new_zeros(len(others), dtype=torch.float64)
        survey = Survey(own.new_zeros(len(sizes) + 1), none, none > 0)
    weighed = _weighed(losses, records, began, alone, survey, options)
    model = models.index_select(0, weighed[0].view(1))[0]
    pulled = _pulled(model, own, survey.sums, sizes, reach) if turn else model
    return Verdict(*weighed, survey.sums, model, pulled)


def _surveyed(
    others: Tensor, own: Tensor, start: Tensor, sums: Tensor, sizes: tuple[int, ...], ratio: float
) -> Survey:
    turn = mean_squares(own - start, sizes)
    sums = KEPT * sums + torch.cat([turn, turn.new_ones(1)])
    # After a model that has got out of hand one begins anew.
    sums = torch.where((own.sum() + sums.sum()).isfinite(), sums, 0.0)
    squares = sums[:-1] / sums[-1]
    length = sum(n * square for n, square in zip(sizes, squares, strict=True)).sqrt()
    return Survey(sums, *lineage(others - own, length, ratio))


def _weighed(
    losses: Tensor, known: Tensor, began: Tensor, alone: Tensor, survey: Survey, options: Options
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """A verdict up to `began`."""
    others, own, means = losses[:-1], losses[-1], means_of(losses)
    above, lowest = above_the_lowest(others, means[:-1])
    this = above.clamp(max=MOST)
    records = options.memory * known + torch.stack([this, torch.ones_like(this)], 1)
    believed = survey.related & (records[:, 0] <= options.excess_limit * records[:, 1])
    began = torch.where(began.isnan(), means[-1], began)
    gained = (1 - means[:-1].min() / began).nan_to_num(0.0)  # 0 / 0: there was nothing to gain
    z = torch.where(believed, options.z, options.z / 2)
    tolerances = z * (gained / options.learnt_share).clamp(0, 1)
    holds = alone | ~means[-1].isfinite() | (excess(others, own) <= options.z)
    near = (above <= tolerances) & holds & means[:-1].isfinite()
    turns = torch.where(near, survey.turns, -1)
    number = first(near & (turns == turns.max()))
    picked = torch.arange(len(known), device=number.device) == number
    tolerance = column(picked, tolerances)
    return number, number == len(known), lowest, tolerance, records, began


def _pulled(
    model: Tensor, own: Tensor, sums: Tensor, sizes: tuple[int, ...], reach: float
) -> Tensor:
    """The model pulled into the region."""
    width = region(sums[:-1] / sums[-1], sizes, reach)
    pulled = torch.minimum(torch.maximum(model, own - width), own + width)
    return torch.where(sums[-1] > 0, pulled, model)


def mean_squares(turn: Tensor, sizes: Sequence[int]) -> Tensor:
    """Of what a turn changes, for each layer."""
    return torch.stack([part.square().mean() for part in turn.split(list(sizes))])


def region(squares: Tensor, sizes: Sequence[int], reach: float) -> Tensor:
    """reach · s for every coordinate, with s the root of its layer's mean square."""
    widths = zip(reach * squares.sqrt(), sizes, strict=True)
    return torch.cat([width.expand(size) for width, size in widths])


def _if_good(either: Tensor, losses: Tensor, lowest: Tensor, tolerance: Tensor) -> Tensor:
    """Of the chosen model and the pulled one, whose losses these are."""
    return torch.where(excess(losses, lowest) <= tolerance, either[1], either[0])
