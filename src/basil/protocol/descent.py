"""A turn that must help: a step that raises the loss is not taken."""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

from basil.learning.promises import Losses, Selection, means_of, tensor_of
from basil.protocol.requests import Combine, Request, Score, Train
from basil.protocol.rules import Candidates, Choice, Rule

Memory: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[..., Train]  # from a model and what the optimiser remembers


class Turn(NamedTuple):
    """What came of it, from which of whose models, and what optimiser and rule remember then."""

    model: Tensor
    senders: tuple[int | None, ...]
    selected: Selection
    memory: Memory
    rule: Memory


Improving: TypeAlias = Generator[Request, Any, Turn]


def stepping(
    rule: Rule, candidates: Candidates, choice: Choice, step: Step, memory: Memory
) -> Improving:
    """Eq. (2), wherever it leads."""
    model = yield step(choice.model, memory=memory)
    return Turn(model, candidates.senders, choice.selected, memory, choice.state)


def descending(
    rule: Rule, candidates: Candidates, choice: Choice, step: Step, memory: Memory
) -> Improving:
    """Eq. (2) from the first model, in the rule's order, whose step ends no higher than it began.

    With x̄ the model that the rule has chosen, and ℓ the mean loss on the batch on which models were
    judged: x = x̄ − η ∇f(x̄) is taken if ℓ(x) ≤ ℓ(x̄).  Else x̄ is left out, the rule chooses again
    among the others, and the step from its choice is held against the same ℓ(x̄).  If none passes,
    the node goes on from its own last model, if that step lowers its loss; else x̄ stays as it is.

    A lie that changes no output (docs/research/symmetry.md) is seen by no loss; the step from it
    is.  This needs no knowledge of a network's symmetries.  It costs an evaluation, and for each
    step that is not taken another step and evaluation.  (No publication's.  Gradient descent that
    backtracks, Armijo 1966, has shorter steps in the place of other models.)
    """
    first, bar, others = choice, None, candidates
    while (place := choice.selected.index) < len(others.entries):
        turn = yield from stepping(rule, others, choice, step, memory.copy())
        bar = bar or others.losses[place]
        if (yield from _no_higher(turn, candidates, bar)):
            return turn._replace(rule=first.begun_at(choice.model).state)
        others = others.without(place)
        if not others.entries:
            break
        choice = yield from rule(others)
    own = yield step(candidates.own, memory=(kept := memory.copy()))
    alone = first.begun_at(candidates.own).state
    turn = Turn(own, (None,), Selection([candidates.own], 0), kept, alone)
    if bar is None:  # all that was sent is garbage
        return turn
    before = yield from candidates.score_own()
    if (yield from _no_higher(turn, candidates, before)):
        return turn
    return Turn(tensor_of(first.model), candidates.senders, first.selected, memory, first.state)


def _no_higher(
    turn: Turn, candidates: Candidates, before: Losses
) -> Generator[Request, Any, Tensor]:
    after = yield Score(turn.model, candidates.batch)
    lower: Tensor = yield Combine(_up_to, args=(after, before))
    return lower


def _up_to(after: Tensor, before: Tensor) -> Tensor:
    after, before = means_of(after[None]), means_of(before[None])
    return (after <= before) & after.isfinite()
