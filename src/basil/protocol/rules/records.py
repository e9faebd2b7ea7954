"""What a node remembers of its senders: how their models have compared, over the rounds."""

from typing import NamedTuple

import torch
from torch import Tensor

from basil.errors import UserError
from basil.learning.promises import means_of
from basil.protocol.rules.contract import Candidates
from basil.protocol.rules.noise import excess

LEAST = 3  # older models that a model is compared with, or there is no verdict
MOST = 3.0  # standard errors that a verdict may count, or credit: none ruins or redeems anybody


class Compared(NamedTuple):
    """Candidates and, where there is one more, oneself last.

    A sender's record is [Σ μ^a t, Σ μ^2a, Σ μ^a e, Σ μ^a], this round included, with its verdicts t
    and its excesses e over the lowest, cut off at 3; its standing is Σ μ^a t / √Σ μ^2a.
    """

    means: Tensor
    best: Tensor  # which one has the lowest mean
    above: Tensor  # by how much each lies above that one, in standard errors
    records: Tensor  # [candidate, 4]
    standings: Tensor  # [candidate]


def recalled(candidates: Candidates, memory: float) -> list[Tensor]:
    """The record of each candidate's sender as it was left a round ago."""
    if not 0 < memory <= 1:
        raise UserError(f"scheme.memory = {memory}: it must be above 0, up to 1")
    known = candidates.state.get("standing", {})
    nothing = candidates.own.new_zeros(4, dtype=torch.float64)
    return [known.get(str(entry.sender), nothing) for entry in candidates.entries]


def remembered(candidates: Candidates, records: Tensor) -> dict[str, Tensor]:
    """The state that `recalled` reads, with these records of the candidates' senders."""
    names = [str(entry.sender) for entry in candidates.entries]
    known: dict[str, Tensor] = candidates.state.get("standing", {})
    return known | dict(zip(names, records, strict=True))


def compared(losses: Tensor, records: Tensor, memory: float) -> Compared:
    """Of losses [candidates and oneself, sample] and the records of a round ago."""
    means = means_of(losses)
    apart = excess(losses[:, None], losses[None])  # of each above each: all that is needed below
    best = torch.arange(len(means), device=means.device) == means.argmin()
    above = torch.where(best, 0.0, column(best, apart))
    records = _renewed(records, _verdicts(apart[:-1, :-1], means[:-1], above[:-1]), memory)
    standings = torch.where(records[:, 1] > 0, records[:, 0] / records[:, 1].sqrt(), 0.0)
    return Compared(means, best, above, records, standings)


def column(mask: Tensor, values: Tensor) -> Tensor:
    """The values in the one column that is meant.  Without a gather, so that it can be compiled."""
    return torch.where(mask, values, 0.0).sum(-1)


def _renewed(records: Tensor, verdicts: Tensor, memory: float) -> Tensor:
    """With this round's, the nearest sender's first; without where too few older ones are here."""
    rows, columns = (torch.arange(n, device=records.device) for n in records.shape)
    faded = memory * records * torch.where(columns == 1, memory, 1.0)  # a sum of squares
    return torch.where(rows[:, None] < len(records) - LEAST, faded + verdicts, records)


def _verdicts(apart: Tensor, means: Tensor, above: Tensor) -> Tensor:
    """[sender, (t, 1, e, 1)]: t for each row against the middle one of the older ones."""
    rows = torch.arange(len(means), device=means.device)
    older = rows[None, :] > rows[:, None]
    # Of m older models the middle one by mean loss; of an even number the better of the two.
    before = (means[:, None] < means) | ((means[:, None] == means) & (rows[:, None] < rows))
    rank = (older[:, :, None] & before).sum(1)  # of column j among those older than row i
    middle = older & (rank == (older.sum(1, keepdim=True) - 1) // 2)
    t = column(middle, apart).clamp(-MOST, MOST)
    sane = (middle & means.isfinite()).any(1)  # next to garbage there is no verdict
    one = torch.ones_like(t)
    return torch.where(sane[:, None], torch.stack([t, one, above.clamp(max=MOST), one], 1), 0.0)
