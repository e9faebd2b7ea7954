"""A turn that must help: whose step is taken, by hand; and lies that no loss sees."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from basil.experiment import Simulation, set_up
from basil.learning.pool import Batch
from basil.learning.promises import Losses, Selection, tensor_of
from basil.protocol.descent import Turn, descending
from basil.protocol.drive import Driver
from basil.protocol.memory import Entry
from basil.protocol.requests import Combine, Score, Select, Train
from basil.protocol.rules import Candidates
from basil.protocol.rules.contract import Choice
from basil.protocol.rules.lowest import lowest_loss
from basil.recipe import parse

BATCH = Batch(np.arange(2))


def turn(losses: list[float], after: dict[float, float]) -> tuple[Turn, list[float]]:
    """Models 0, 1, … with these losses; the step from i leads to i + ½, whose loss is `after`[i].

    One's own is −1, and has the loss 5.  And from which models a step was tried.
    """
    entries = [Entry(10 + i, 9 - i, torch.tensor([float(i)])) for i in range(len(losses))]
    scored = [Losses(torch.tensor([loss, loss])) for loss in losses]
    own = torch.tensor([-1.0])
    candidates = Candidates(entries, scored, own, BATCH)
    tried: list[float] = []

    def whole() -> Any:
        choice: Choice = yield from lowest_loss(candidates)
        choice.state.update(start=tensor_of(choice.model), rounds=3)
        step = partial(Train, batches=(BATCH,), rate=1.0, key=lambda: 0)
        return (yield from descending(lowest_loss, candidates, choice, step, {"before": 1}))

    driver: Driver[Any, Turn] = Driver(whole())
    for request in driver:
        match request:
            case Select(models, losses_of, mine, pick):
                rows = torch.stack([promise.wait() for promise in losses_of])
                finite = bool(rows.mean(1).isfinite().any())
                picked = int(pick(rows, rows.mean(1))) if finite else len(models)
                driver.answer = Selection([*models, mine], picked)
            case Train(model, _, _, _, memory):
                tried.append(float(tensor_of(model)))
                memory["after"] = tried[-1]
                driver.answer = tensor_of(model) + 0.5
            case Score(model, batch):
                assert batch is BATCH
                loss = 5.0 if model is own else after[float(model) - 0.5]
                driver.answer = Losses(torch.full((2,), loss))
            case Combine():
                driver.answer = request.answer()
    return driver.result, tried


def test_a_step_that_lowers_the_loss_is_taken() -> None:
    found, tried = turn([3.0, 2.0, 4.0], {1: 1.9})
    assert (found.model.tolist(), tried) == ([1.5], [1.0])
    assert found.senders[found.selected.index] == 11
    assert found.memory == {"before": 1, "after": 1.0}
    assert found.rule == {"start": torch.tensor([1.0]), "rounds": 3}


def test_else_one_from_the_next_best_and_nothing_is_remembered_of_the_first() -> None:
    """Model 1 is the lowest, and its step ends at 9; that from model 0 at 2, as high as 1 is."""
    found, tried = turn([3.0, 2.0, 4.0], {1: 9.0, 0: 2.0})
    assert (found.model.tolist(), tried) == ([0.5], [1.0, 0.0])
    assert found.senders[found.selected.index] == 10
    assert found.memory == {"before": 1, "after": 0.0}
    assert found.rule == {"start": torch.tensor([0.0]), "rounds": 3}  # whence a turn is measured


@pytest.mark.parametrize("value", [9.0, np.inf, np.nan])
def test_a_step_that_ends_above_the_best_model_is_none_though_it_helped_its_own(
    value: float,
) -> None:
    """From 3 to 2.5 and from 4 to 2.1: poor models that become less poor.  Nor does one's own."""
    found, tried = turn([3.0, 2.0, 4.0], {1: value, 0: 2.5, 2: 2.1, -1: 5.1})
    assert tried == [1.0, 0.0, 2.0, -1.0]
    assert found.model.tolist() == [1.0]  # the lowest, as it is
    assert found.senders[found.selected.index] == 11
    assert found.memory == {"before": 1}
    assert found.rule == {"start": torch.tensor([1.0]), "rounds": 3}


def test_where_nobody_can_be_gone_on_from_a_node_goes_on_alone() -> None:
    """Its own model is held to its own loss, 5."""
    found, tried = turn([3.0, 2.0], {1: 9.0, 0: 9.0, -1: 4.9})
    assert tried == [1.0, 0.0, -1.0]
    assert found.model.tolist() == [-0.5]
    assert found.senders[found.selected.index] is None
    assert found.memory == {"before": 1, "after": -1.0}
    assert found.rule == {"start": torch.tensor([-1.0]), "rounds": 3}


def test_garbage_is_never_trained_from() -> None:
    found, tried = turn([np.inf, 2.0], {1: 3.0, -1: 6.0})
    assert (found.model.tolist(), tried) == ([1.0], [1.0, -1.0])
    found, tried = turn([np.inf, np.nan], {})
    assert (found.model.tolist(), tried) == ([-0.5], [-1.0])  # one's own, held to nothing


def run(
    tmp_path: Path,
    attack: dict[str, Any],
    scheme: dict[str, Any],
    learning: dict[str, Any] | None = None,
    **ring: Any,
) -> Any:
    recipe = parse(
        {
            "ring": {"nodes": 12, "byzantine": 4, "connectivity": 5, **ring},
            "scheme": {"rounds": 25, "canonical": False, **scheme},
            "attack": attack,
            "learning": learning or {"rate": 0.1},
            "record": {"every": 25},
        }
    )
    folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
    return Simulation(set_up(recipe)).run(folder)


@pytest.mark.parametrize("rule", ["lowest-loss", "trust"])
@pytest.mark.parametrize("factor", [2.0, 20.0, 0.05])
def test_a_lie_that_keeps_the_function_is_seen_by_the_step_from_it(
    tmp_path: Path, rule: str, factor: float
) -> None:
    """Models as they come: nobody knows a symmetry here."""
    lie = {"name": "rescale", "factor": factor}
    without = run(tmp_path, lie, {"rule": rule})
    found = run(tmp_path, lie, {"rule": rule, "descent": True})
    assert without["accuracy"]["worst"] < 0.3
    assert found["accuracy"]["worst"] > 0.7
    assert found["work"]["steps"] > without["work"]["steps"]


@pytest.mark.parametrize("scheme", [{}, {"rule": "trust"}, {"name": "basil+"}, {"name": "r-plain"}])
def test_without_a_lie_it_changes_nothing(tmp_path: Path, scheme: dict[str, Any]) -> None:
    ring: dict[str, Any] = {"groups": 2} if scheme.get("name") == "basil+" else {}
    plain = run(tmp_path, {"name": "none"}, scheme, **ring)
    found = run(tmp_path, {"name": "none"}, {**scheme, "descent": True}, **ring)
    assert found["model_sha256"] == plain["model_sha256"]
    more = found["work"]["evaluations"] - plain["work"]["evaluations"]
    assert more == (0 if scheme.get("name") == "r-plain" else plain["work"]["steps"])


def test_a_node_is_waited_for_while_it_tries_all() -> None:
    """S = 5: steps from six models, and their ends and its own beside the five that arrived."""
    ring = {"nodes": 12, "byzantine": 4, "connectivity": 5}
    setup = set_up(parse({"ring": ring, "scheme": {"descent": True}}))
    timing, steps = setup.timing, setup.node_data.steps_in_a_turn()
    turn = (
        timing.link(4 * setup.compute.layout.size) + 12 * timing.forward + 6 * steps * timing.step
    )
    assert setup.patience == pytest.approx(setup.recipe.time.patience * turn)


def test_what_the_optimiser_remembers_of_a_step_that_was_taken_stays(tmp_path: Path) -> None:
    """The same bits as without it, which momentum that is forgotten would not give."""
    momentum: dict[str, Any] = {"rate": 0.01, "optimizer": "sgd", "momentum": 0.9}
    plain, found = (
        run(tmp_path, {"name": "none"}, {"rounds": 5, "descent": descent}, momentum)
        for descent in (False, True)
    )
    assert found["model_sha256"] == plain["model_sha256"]
    assert found["work"]["steps"] == plain["work"]["steps"]  # no step was refused
