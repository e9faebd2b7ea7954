"""A memory of who made models worse."""

from functools import partial

import torch
from torch import Tensor

from basil.learning.promises import chosen, means_of, stacked
from basil.protocol.requests import Combine, Score
from basil.protocol.rules.contract import Candidates, Choice, Deliberation
from basil.protocol.rules.freshest import non_negative
from basil.protocol.rules.noise import column, excess, first
from basil.protocol.rules.records import MOST, recalled, remembered

LEAST = 3  # older models that a model is compared with, or there is no verdict


def standing(
    candidates: Candidates,
    *,
    z: float = 1.0,
    doubt: float = 1.0,
    memory: float = 0.98,
) -> Deliberation:
    """`freshest`, from senders whose models were not, over the rounds, worse than those before.

    In each round every sender j gets a verdict: the excess t_j of its model's losses over those of
    the middle one (by mean loss) of the older stored models, in standard errors and cut off at ±3.
    Its standing is the sum of its verdicts, each round weighed `memory` times the round after,
    divided by the standard deviation that such a sum has by chance: Σ μ^a t / √Σ μ^2a.  Who stands
    above `doubt` is passed over.  Otherwise, and for one's own last model, as in `freshest`.  (No
    publication's.)

    Why: a colluder that shifts good models by less than one batch's noise cannot be seen in one
    turn.  But it does so every round, to the same successors: after r rounds the noise has shrunk
    by √r, and the shift has not.  An honest sender's model is on average *better* than older ones.

    Limits: what makes no model worse on this node's data (a backdoor, a drift along directions that
    do not matter yet) earns no bad verdicts.  A liar that alternates can keep its standing at the
    edge, and then does as much harm as it has done good.  Where turns are long, an honest one ends
    in a model that is worse on others' data than an average of older ones, and who sends such
    averages stands best.
    """
    non_negative(z, "z")
    records = recalled(candidates, memory)
    own = yield Score(candidates.own, candidates.batch)
    work = partial(_weigh, z=z, doubt=doubt, memory=memory)
    args = stacked([*candidates.losses, own]), *records
    number, judged = yield Combine(work, args=args)
    selected = chosen([*candidates.models, candidates.own], number)
    return Choice(selected, selected, {"records": remembered(candidates, judged)})


def _weigh(
    losses: Tensor, *known: Tensor, z: float, doubt: float, memory: float
) -> tuple[Tensor, Tensor]:
    """The number that is chosen, one past the last for oneself; and the records."""
    means = means_of(losses)
    apart = excess(losses[:, None], losses[None])  # of each above each
    best = torch.arange(len(means), device=means.device) == means.argmin()
    above = torch.where(best, 0.0, column(best, apart))
    records = _renewed(torch.stack(known), _verdicts(apart[:-1, :-1], means[:-1]), memory)
    standings = torch.where(records[:, 1] > 0, records[:, 0] / records[:, 1].sqrt(), 0.0)
    trusted = torch.cat([standings <= doubt, torch.ones_like(best[:1])])
    usable = (above <= z) & trusted & means.isfinite()
    return first(usable).clamp(max=len(known)), records


def _renewed(records: Tensor, verdicts: Tensor, memory: float) -> Tensor:
    """[Σ μ^a t, Σ μ^2a] with this round's, the nearest sender's first; without where too few older
    ones are here.
    """
    rows, columns = (torch.arange(n, device=records.device) for n in records.shape)
    faded = memory * records * torch.where(columns == 1, memory, 1.0)  # a sum of squares
    return torch.where(rows[:, None] < len(records) - LEAST, faded + verdicts, records)


def _verdicts(apart: Tensor, means: Tensor) -> Tensor:
    """[sender, (t, 1)]: t for each row against the middle one of the older ones."""
    rows = torch.arange(len(means), device=means.device)
    older = rows[None, :] > rows[:, None]
    # Of m older models the middle one by mean loss; of an even number the better of the two.
    before = (means[:, None] < means) | ((means[:, None] == means) & (rows[:, None] < rows))
    rank = (older[:, :, None] & before).sum(1)  # of column j among those older than row i
    middle = older & (rank == (older.sum(1, keepdim=True) - 1) // 2)
    t = column(middle, apart).clamp(-MOST, MOST)
    sane = (middle & means.isfinite()).any(1)  # next to garbage there is no verdict
    return torch.where(sane[:, None], torch.stack([t, torch.ones_like(t)], 1), 0.0)
