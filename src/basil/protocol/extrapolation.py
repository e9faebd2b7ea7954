"""A turn that begins further along: the way that models went in the last lap, a little longer."""

from collections.abc import Generator
from functools import partial
from typing import Any

from torch import Tensor

from basil.learning.promises import Chosen, means_of, tensor_of
from basil.protocol.requests import Combine, Request, Score
from basil.protocol.rules import Candidates, Choice


def extrapolated(
    candidates: Candidates, choice: Choice, laps: float
) -> Generator[Request, Any, Choice]:
    """Go on from a model ahead of the chosen one, if no stored model's loss is as low as its.

        y = x* + laps · (x* − x_i)

    x* is the rule's choice, and x_i what this node sent a lap ago: x* − x_i is what a lap of n
    turns has come to, and with laps = m / n y is m of their mean ahead.  In a mean of turns the
    noise of their batches cancels and their progress does not, so it is a better direction than any
    one of them (heavy ball: Polyak 1964, "Some methods of speeding up the convergence of iteration
    methods").  y is in canonical form, as what arrives is.  On the batch that models are judged on,
    who goes on from it is better off than with the lowest loss.

    It costs an evaluation.  Measured: docs/research/rules.md.  (No publication's.)
    """
    chosen = tensor_of(choice.model)
    work = partial(_ahead, laps=laps)
    ahead = yield Combine(work, args=(chosen, candidates.own), makes_model=True, unseen=True)
    its = yield Score(ahead, candidates.batch)
    number = yield Combine(_is_lowest, args=(its, candidates.losses))
    return choice.begun_at(Chosen([chosen, ahead], number))


def _ahead(chosen: Tensor, own: Tensor, *, laps: float) -> Tensor:
    return chosen + laps * (chosen - own)


def _is_lowest(its: Tensor, losses: Tensor) -> Tensor:
    return (means_of(its[None])[0] < means_of(losses).min()).long()
