"""The freshest of the models that a mini-batch cannot tell from the best."""

from functools import partial

from torch import Tensor

from basil.errors import UserError
from basil.protocol.rules.contract import Candidates, RuleGenerator
from basil.protocol.rules.excess import above_the_lowest, first


def freshest(candidates: Candidates, *, z: float = 1.0, anchor: bool = True) -> RuleGenerator:
    """The nearest predecessor's model whose loss is within z standard errors of the lowest.

    j* = the nearest j with mean_i(ℓ_ij − ℓ_i*) ≤ z · sd_i(ℓ_ij − ℓ_i*) / √B, where * is the model
    with the lowest mean loss on this round's batch.  (No publication's.)

    Why: among S nearly equal models the lowest loss is a matter of luck, and every step taken since
    the chosen one is lost.  The nearest of those that cannot be told apart has seen the most steps.

    `anchor`: one's own last model is scored too, and is chosen if it beats all others by more than
    the noise.  A lie that is too small to be seen in one turn has added up after a lap: by then the
    ring has fallen behind where this node left it.  It costs one evaluation a turn.

    Limits: a sender whose every model is within the noise of the best is chosen whenever it stands
    nearest.  Larger z: faster and less safe; z = 0 without anchor is the paper's rule.
    """
    non_negative(z, "z")
    own = (yield from candidates.score_own()) if anchor else None
    return (yield from candidates.choose(partial(_freshest, z=z), own))


def _freshest(losses: Tensor, means: Tensor, *, z: float) -> Tensor:
    above, _ = above_the_lowest(losses, means)
    return first(above <= z)


def non_negative(value: float, option: str) -> None:
    if not value >= 0:
        raise UserError(f"scheme.{option} = {value}: it must be 0 or more")
