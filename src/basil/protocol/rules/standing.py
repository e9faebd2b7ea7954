"""A memory of who made models worse."""

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from basil.errors import UserError
from basil.learning.promises import chosen, means_of, stacked
from basil.protocol.requests import Combine, Score
from basil.protocol.rules.contract import Candidates, Choice, Deliberation
from basil.protocol.rules.freshest import non_negative
from basil.protocol.rules.noise import excess, first

LEAST = 3  # older models that a model is compared with, or there is no verdict
MOST = 3.0  # standard errors that a verdict may count, or credit: none ruins or redeems anybody


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
    edge, and then does as much harm as it has done good.
    """
    weighed = yield from in_good_standing(candidates, z, doubt, memory)
    selected = chosen([*candidates.models, candidates.own], weighed.number)
    return Choice(selected, selected, {"standing": weighed.records})


@dataclass(frozen=True, slots=True, eq=False)
class Weighed:
    """The candidate that is chosen, one past the last for oneself; the losses of the best model
    there is; by how much the chosen one may be worse, in standard errors; each known sender's
    [Σ μ^a t, Σ μ^2a, Σ μ^a e, Σ μ^a], this round included, with e the excess over the lowest; and
    the mean loss of one's own model when one first looked.
    """

    number: Tensor
    lowest: Tensor
    tolerance: Tensor
    records: dict[str, Tensor]
    began: Tensor


def in_good_standing(
    candidates: Candidates,
    z: float,
    doubt: float,
    memory: float,
    credit: float = 0.0,
    learnt: float = 0.0,
    far: float = 0.0,
) -> Generator[Score | Combine, Any, Weighed]:
    """What `standing` decides by; `credit`, `learnt` and `far` are those of `trust`."""
    non_negative(z, "z")
    if not 0 < memory <= 1:
        raise UserError(f"scheme.memory = {memory}: it must be above 0, up to 1")
    own = yield Score(candidates.own, candidates.batch)
    known: dict[str, Tensor] = dict(candidates.state.get("standing", {}))
    names = [str(entry.sender) for entry in candidates.entries]
    nothing = candidates.own.new_zeros(4, dtype=torch.float64)
    began = candidates.state.get("began")
    if began is None:
        began = nothing.new_full((), torch.nan)
    records = (known.get(name, nothing) for name in names)
    args = stacked([*candidates.losses, own]), began, *records
    work = partial(_weigh, z=z, doubt=doubt, memory=memory, credit=credit, learnt=learnt, far=far)
    number, lowest, tolerance, judged, began = yield Combine(work, args=args)
    known |= zip(names, judged, strict=True)
    return Weighed(number, lowest, tolerance, known, began)


def _weigh(
    losses: Tensor,
    began: Tensor,
    *known: Tensor,
    z: float,
    doubt: float,
    memory: float,
    credit: float,
    learnt: float,
    far: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Of losses of the candidates and oneself, of one's first loss and of records: as in
    `Weighed`.
    """
    records, count = torch.stack(known), len(known)
    means = means_of(losses)
    began = torch.where(began.isnan(), means[-1], began)
    apart = excess(losses[:, None], losses[None])  # of each above each: all that is needed below
    rows = torch.arange(count + 1, device=losses.device)
    best = rows == means.argmin()
    above = torch.where(best, 0.0, _at(best, apart))
    records = _remembered(records, _verdicts(apart[:-1, :-1], means[:-1], above[:-1]), memory)
    standings = torch.where(records[:, 1] > 0, records[:, 0] / records[:, 1].sqrt(), 0.0)
    given = torch.where(means.min() <= (1 - learnt) * began, credit, 0.0)
    usually_near = records[:, 2] <= far * records[:, 3]
    beyond = torch.where(usually_near, (given * -standings).clamp(0, MOST), 0.0)
    oneself = means.new_zeros(1)
    tolerances = z + torch.cat([beyond, oneself])
    doubted = torch.cat([standings, oneself]) > doubt
    near = (above <= tolerances) & ~doubted
    number = first(near & means.isfinite()).clamp(max=count)
    return number, _at(best, losses.T), _at(rows == number, tolerances), records, began


def _remembered(records: Tensor, verdicts: Tensor, memory: float) -> Tensor:
    """With this round's, the nearest sender's first; without where too few older ones are here."""
    rows, columns = (torch.arange(n, device=records.device) for n in records.shape)
    faded = memory * records * torch.where(columns == 1, memory, 1.0)  # a sum of squares
    return torch.where(rows[:, None] < len(records) - LEAST, faded + verdicts, records)


def _at(mask: Tensor, values: Tensor) -> Tensor:
    """The values in the one column that is meant.  Without a gather, so that it can be compiled."""
    return torch.where(mask, values, 0.0).sum(-1)


def _verdicts(apart: Tensor, means: Tensor, above: Tensor) -> Tensor:
    """[sender, (t, 1, e, 1)]: t for each row against the middle one of the older ones."""
    rows = torch.arange(len(means), device=means.device)
    older = rows[None, :] > rows[:, None]
    # Of m older models the middle one by mean loss; of an even number the better of the two.
    before = (means[:, None] < means) | ((means[:, None] == means) & (rows[:, None] < rows))
    rank = (older[:, :, None] & before).sum(1)  # of column j among those older than row i
    middle = older & (rank == (older.sum(1, keepdim=True) - 1) // 2)
    t = _at(middle, apart).clamp(-MOST, MOST)
    sane = (middle & means.isfinite()).any(1)  # next to garbage there is no verdict
    one = torch.ones_like(t)
    return torch.where(sane[:, None], torch.stack([t, one, above.clamp(max=MOST), one], 1), 0.0)
