"""The model with the most turns in it, of those that one batch cannot tell from the best."""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from basil.errors import UserError
from basil.learning.promises import Chosen, Rows, means_of
from basil.protocol.requests import Combine
from basil.protocol.rules.contract import Candidates, Choice, RuleGenerator
from basil.protocol.rules.excess import above_the_lowest, column, excess, first
from basil.protocol.rules.freshest import non_negative
from basil.protocol.rules.lineage import Length, lineage
from basil.protocol.rules.records import recalled, remembered, standing
from basil.table import states


@states(renamed={"kin": "lineage_ratio"})
def trust(
    candidates: Candidates, *, z: float = 2.0, lineage_ratio: float = 2.0, memory: float = 0.9
) -> RuleGenerator:
    """Of the models that one batch cannot tell from the best, the one with the most turns in it.

    Near: its losses exceed those of the lowest by at most τ, in standard errors of the paired
    difference (`excess`; within classes, where models are judged class by class).  With ℓ the
    lowest model's losses on B samples and L₀ the mean loss of the model that this node began with,

        τ = min(z, t₀),    t₀ = (L₀ − mean ℓ) / (sd ℓ / √B).

    t₀ says how sure it is that anything has been learnt: before that only the lowest will do.

    And its sender is not doubted: on average over the rounds (the one a rounds ago with weight
    `memory`^a) its models were no farther above the lowest than those of the best sender now, but
    for z standard errors of the two averages' difference (`standing`).  If all that are near are
    doubted, none is.

    Turns: a model goes back to the older stored one that is nearest to it, if a turn could have
    led there: no longer than r = `lineage_ratio` times the node's own turns, and with no coordinate
    changed by more than r times the most that those change (root mean squares, the turn a rounds
    ago with weight `memory`^a).  It has one turn more then; as many, if it is nearer than 1/r of a
    turn (`lineage`).  Of equals the one with the lowest loss.  In a node's first turn no turns are
    known.

    It costs the distances of S models, and a second model in a node's memory.  Reasons and limits:
    docs/research/trust.md.  (No publication's.)
    """
    non_negative(z, "z")
    if not lineage_ratio >= 1:
        raise UserError(f"scheme.lineage_ratio = {lineage_ratio}: it must be 1 or more")
    if not 0 <= memory <= 1:
        raise UserError(f"scheme.memory = {memory}: it must be from 0 to 1")
    own, state, strata = candidates.own, candidates.state, candidates.strata
    began = state["began"] if state else (yield from candidates.score_own())
    models = Rows([*candidates.models, own])
    judge = partial(_judged, z=z, ratio=lineage_ratio, memory=memory, by_class=bool(strata))
    turn = (state["start"], state["sums"]) if state else ()
    args = candidates.losses, recalled(candidates, 3), began, models, *strata, *turn
    verdict = Verdict(*(yield Combine(judge, args=args, unseen=True)))
    selected = Chosen(models, verdict.number, verdict.start)
    known = {"began": verdict.began, "start": verdict.start, "sums": verdict.sums}
    return Choice(selected, selected, known | remembered(candidates, verdict.records))


class Verdict(NamedTuple):
    """What comes out of the work of a Combine is a plain row of tensors: these."""

    number: Tensor  # of the chosen candidate; one past the last for oneself: nobody is finite
    records: Tensor
    began: Tensor
    sums: Tensor
    start: Tensor  # the chosen model


def _judged(
    losses: Tensor,  # [candidate, sample]
    records: Tensor,  # of the candidates' senders
    began: Tensor,  # L₀; in the first round the losses of which it is the mean
    models: Tensor | Rows,  # candidates and then one's own
    *turn: Tensor,  # where one's last turn began, and the sums then; nothing in the first round
    z: float,
    ratio: float,
    memory: float,
    by_class: bool = False,  # then the samples' classes come before these
) -> Verdict:
    strata, turn = (turn[0], turn[1:]) if by_class else (None, turn)
    means, began = means_of(losses), means_of(began.view(1, -1))[0]
    sums, turns = losses.new_zeros(3), torch.zeros_like(means)
    if turn:
        start, before = turn
        sums, length = _usual(models[-1] - start, before, memory)
        turns = lineage(models[:-1], models[-1], length, ratio)

    above, lowest = above_the_lowest(losses, means, strata)
    learnt = -excess(lowest, began)
    near = (above <= learnt.clamp(min=0, max=z)) & means.isfinite()
    records, average, error = standing(records, above, memory=memory, most=z)
    best = torch.arange(len(average), device=average.device) == average.argmin()
    doubt = z * torch.hypot(error, column(best, error))
    believed = near & (average - average.min() <= doubt)
    near = torch.where(believed.any(), believed, near)
    most = near & (turns == torch.where(near, turns, -1).max())
    number = first(most & (means == torch.where(most, means, torch.inf).min()))
    model = models[number.view(1)][0] if isinstance(models, Tensor) else models[int(number)]
    return Verdict(number, records, began, sums, model)


def _usual(turn: Tensor, sums: Tensor, memory: float) -> tuple[Tensor, Length]:
    """How long one's own turns are: Σ μ^a of their squared length and largest change, and Σ μ^a."""
    last = torch.stack([turn.square().sum(), turn.abs().amax().square(), turn.new_ones(())])
    sums = memory * sums + last
    # After a model that has got out of hand one begins anew: 0 / 0 is no length.
    sums = torch.where(sums.sum().isfinite(), sums, 0.0)
    return sums, Length(*(sums[:2] / sums[2]).sqrt())
