"""What a node remembers of each of its senders: two sums over the rounds."""

import torch
from torch import Tensor

from basil.errors import UserError
from basil.protocol.rules.contract import Candidates


def recalled(candidates: Candidates, memory: float) -> list[Tensor]:
    """The record of each candidate's sender as it was left a round ago."""
    if not 0 < memory <= 1:
        raise UserError(f"scheme.memory = {memory}: it must be above 0, up to 1")
    known, names = candidates.state.get("records", {}), _names(candidates)
    if any(name not in known for name in names):
        nothing = candidates.own.new_zeros(2, dtype=torch.float64)
        known = dict.fromkeys(names, nothing) | known
    return [known[name] for name in names]


def remembered(candidates: Candidates, records: Tensor) -> dict[str, Tensor]:
    """The state that `recalled` reads, with these records of the candidates' senders."""
    known: dict[str, Tensor] = candidates.state.get("records", {})
    return known | dict(zip(_names(candidates), records, strict=True))


def _names(candidates: Candidates) -> list[str]:
    return [str(entry.sender) for entry in candidates.entries]
