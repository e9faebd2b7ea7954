"""The paper's rule, and no rule at all."""

from torch import Tensor

from basil.protocol.rules.contract import Candidates, RuleGenerator


def lowest_loss(candidates: Candidates) -> RuleGenerator:
    """argmin over the stored models of the mean loss on this round's batch (Def. 1, eq. 3).

    A tie goes to the nearest predecessor, whose model has seen the most updates.
    """
    return (yield from candidates.choose(_lowest))


def newest(candidates: Candidates) -> RuleGenerator:
    """The nearest predecessor's model whatever its loss: no defence beyond refusing garbage."""
    return (yield from candidates.choose(_first_finite))


def _lowest(losses: Tensor, means: Tensor) -> Tensor:
    return means.argmin()


def _first_finite(losses: Tensor, means: Tensor) -> Tensor:
    return means.isinf().int().argmin()
