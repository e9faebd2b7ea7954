"""A memory of who made models worse."""

from functools import partial

import torch
from torch import Tensor

from basil.learning.promises import chosen, stacked
from basil.protocol.requests import Combine, Score
from basil.protocol.rules.contract import Candidates, Choice, Deliberation
from basil.protocol.rules.freshest import non_negative
from basil.protocol.rules.noise import first
from basil.protocol.rules.records import compared, recalled, remembered


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
    return Choice(selected, selected, {"standing": remembered(candidates, judged)})


def _weigh(
    losses: Tensor, *known: Tensor, z: float, doubt: float, memory: float
) -> tuple[Tensor, Tensor]:
    """The number that is chosen, one past the last for oneself; and the records."""
    now = compared(losses, torch.stack(known), memory)
    trusted = torch.cat([now.standings <= doubt, torch.ones_like(now.best[:1])])
    usable = (now.above <= z) & trusted & now.means.isfinite()
    return first(usable).clamp(max=len(known)), now.records
