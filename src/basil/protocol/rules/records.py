"""What a rule remembers of senders from round to round: a few numbers for each."""

import torch
from torch import Tensor

from basil.protocol.rules.contract import Candidates


def recalled(candidates: Candidates, numbers: int) -> list[Tensor]:
    """Of each candidate's sender; zeros for one that is new."""
    known = candidates.state.get("records", {})
    nothing = candidates.own.new_zeros(numbers, dtype=torch.float64)
    return [known.get(sender, nothing) for sender in _names(candidates)]


def remembered(candidates: Candidates, records: Tensor) -> dict[str, dict[str, Tensor]]:
    """For the rule's state: those of now, and of who is not stored in this round what was known."""
    known = candidates.state.get("records", {})
    return {"records": known | dict(zip(_names(candidates), records, strict=True))}


def _names(candidates: Candidates) -> list[str]:
    return [str(entry.sender) for entry in candidates.entries]


def standing(
    records: Tensor, above: Tensor, *, memory: float, most: float
) -> tuple[Tensor, Tensor, Tensor]:
    """How far above the lowest each sender's models were on average, with its standard error.

    Of excesses t_a of a rounds ago, cut off at `most`, with weights μ^a (μ = `memory`):

        s = Σ μ^a min(t_a, most) / Σ μ^a,    e = √(Σ μ^2a) / Σ μ^a,

    since t has unit variance.  Records are the three sums; they come first, with this round's.
    """
    total = memory * records[:, 0] + above.clamp(max=most)
    weight = memory * records[:, 1] + 1
    squares = memory**2 * records[:, 2] + 1
    return torch.stack([total, weight, squares], 1), total / weight, squares.sqrt() / weight
