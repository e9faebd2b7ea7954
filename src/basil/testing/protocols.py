"""Rules and schemes: what is chosen must be usable, and a run must go on from its checkpoint."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from basil.learning.pool import Batch
from basil.learning.promises import Losses, Selection, decide, tensor_of
from basil.protocol.drive import Driver
from basil.protocol.memory import Entry
from basil.protocol.requests import Combine, Score, Select
from basil.protocol.rules import RULES, Candidates, Choice, RuleGenerator
from basil.protocol.schemes import POOL, SCHEMES, runs_on
from basil.testing.runs import check_runs, must

INF, NAN = float("inf"), float("nan")
OWN = torch.full((2,), -1.0)
USABLE: list[tuple[list[list[float]], set[int]]] = [
    ([[3.0, 1.0], [0.5, 0.2], [9.0, 9.0]], {0, 1, 2}),
    ([[INF, INF], [0.5, 0.2], [NAN, 1.0]], {1}),
    ([[1.0, -INF], [NAN, NAN], [2.0, 3.0]], {2}),
    ([[INF, 0.0], [NAN, NAN]], {2}),  # nothing: the node goes on from its own model
]
"""Losses of candidates, and which may be chosen; the number after the last is one's own."""


def answered(steps: RuleGenerator, own: Sequence[float] = ()) -> Choice:
    """Let a rule decide; the plain path answers, and `own` are the losses of one's own model.

    Without them it is garbage, which no rule may choose for its losses.
    """
    rule = Driver(steps)
    for request in rule:
        if isinstance(request, Score):
            garbage = [torch.inf] * len(request.batch)
            rule.answer = Losses(torch.tensor(own or garbage))
        elif isinstance(request, Combine):
            rule.answer = request.answer()
        else:
            must(isinstance(request, Select), f"a rule cannot ask for {request!r:.60}")
            rows = torch.stack([promise.wait() for promise in request.losses])
            index = decide(rows, request.pick, len(request.models))
            rule.answer = Selection([*request.models, request.own], int(index))
    return rule.result


def chosen(rule: Callable[..., RuleGenerator], losses: list[list[float]], **options: Any) -> Choice:
    """What a rule chooses among models (0, 0), (1, 1), … with these losses; its own is (−1, −1)."""
    entries = [Entry(i, 100 - i, torch.full((2,), float(i))) for i in range(len(losses))]
    promises = [Losses(torch.tensor(row)) for row in losses]
    batch = Batch(np.arange(len(losses[0])))
    return answered(rule(Candidates(entries, promises, OWN, batch), **options))


def check_choices(rule: Callable[..., RuleGenerator], **options: Any) -> None:
    """It chooses among what is usable, whatever garbage the others have sent."""
    for losses, usable in USABLE:
        choice = chosen(rule, losses, **options)
        must(isinstance(choice, Choice), f"a rule must return a Choice, not {choice!r:.40}")
        must(
            choice.selected.index in usable,
            f"of losses {losses} it chooses {choice.selected.index}; usable: {sorted(usable)}",
        )
        model = tensor_of(choice.model)
        must(model.shape == OWN.shape, f"it goes on from {tuple(model.shape)}, not from a model")
        if usable == {len(losses)}:
            must(torch.equal(model, OWN), "with nothing usable it must go on from its own model")


def check_rule(rule: str | Callable[..., Any], **options: Any) -> None:
    """Garbage is never chosen, and a run can be resumed with what the rule remembers."""
    with RULES.lent(rule) as name:
        check_choices(RULES[name], **options)
        for attack in ("none", "garbage"):
            check_runs("scheme", {"rule": name, **options}, attack=attack)


def check_scheme(scheme: str | Callable[..., Any], **options: Any) -> None:
    """It ends, with silent nodes too, the same bits again, and can be stopped and resumed."""
    with SCHEMES.lent(scheme) as name:
        attacks = ("none",) if runs_on(name) == POOL else ("none", "gaussian", "silent")
        for attack in attacks:
            summary = check_runs("scheme", {"name": name, **options}, attack=attack)
            if attack == "none":
                loss = summary["loss"]["worst"]
                must(np.isfinite(loss), f"without any attack a node's loss is {loss}")
