"""Gauntlet's score (Lidin et al. 2025, arXiv 2505.21684): the loss before and after an update."""

from functools import partial

import torch
from torch import Tensor

from basil.errors import UserError
from basil.learning.promises import Chosen, means_of
from basil.protocol.requests import Combine
from basil.protocol.rules.contract import Candidates, Choice, RuleGenerator
from basil.protocol.rules.excess import first
from basil.protocol.rules.records import recalled, remembered
from basil.table import states


@states(scores_own=True)
def gauntlet(candidates: Candidates, *, memory: float = 0.9) -> RuleGenerator:
    """Of the models that better one's own, that of the sender whose models did so most till now.

    s_j = (L(x) − L(x_j)) / L(x): by how much of the loss the update x_j − x improves this node's
    own last model x, on this round's batch; at least −1.  A sender's rating is the mean of its
    scores, a score a rounds ago with weight `memory`^a.  j* = the best rated with s_j > 0, of
    equals the nearest; if there is none, one's own model.

    Gauntlet scores pseudo-gradients of strangers against one common model, on data of the validator
    and on the data that each was told to use, and keeps moving averages and an OpenSkill rating
    (tplr's `compute_improvement_metrics`).  Here every node is a validator with private data, x its
    own model, and nobody is told what to train on: what remains is the score and its memory.

    It costs S + 1 evaluations a turn.  Limits: a rating that was earned can be spent (`betrayal`).
    """
    if not 0 < memory <= 1:
        raise UserError(f"scheme.memory = {memory}: it must be above 0, up to 1")
    own = yield from candidates.score_own()
    args = [*candidates.losses, own], recalled(candidates, 2)
    number, now = yield Combine(partial(_rated, memory=memory), args=args)
    selected = Chosen([*candidates.models, candidates.own], number)
    return Choice(selected, selected, remembered(candidates, now))


def _rated(losses: Tensor, records: Tensor, *, memory: float) -> tuple[Tensor, Tensor]:
    """The number of the chosen candidate, one past the last for oneself; and all records.

    Of each candidate's sender: Σ μ^a of its scores of a rounds ago, and Σ μ^a.
    """
    means = means_of(losses)
    before, after = means[-1], means[:-1]
    gained = ((before - after) / before.abs()).nan_to_num(0.0).clamp(min=-1)
    gained = torch.where(before.isfinite(), gained, 1.0)
    scores = torch.where(after.isfinite(), gained, -1.0)
    known = memory * records + torch.stack([scores, torch.ones_like(scores)], 1)
    ratings = torch.where(scores > 0, known[:, 0] / known[:, 1], -torch.inf)
    return first((scores > 0) & (ratings == ratings.max())), known
