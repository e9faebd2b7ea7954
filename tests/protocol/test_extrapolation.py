"""Turns that begin ahead: by hand, what it costs, and that they are as fast as they are safe."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from basil.experiment import Simulation, set_up
from basil.learning.pool import Batch
from basil.learning.promises import Losses, Selection, tensor_of
from basil.protocol.extrapolation import extrapolated
from basil.protocol.memory import Entry
from basil.protocol.requests import Combine, Score
from basil.protocol.rules import Candidates, Choice
from basil.recipe import parse

OWN, CHOSEN, LOWEST = torch.tensor([1.0, 0.0]), torch.tensor([3.0, 8.0]), torch.zeros(2)
LOSSES = [[2.0, 2.5], [1.0, 3.0], [np.nan, 1.0]]  # of the chosen, of the lowest, and of garbage


def begun(losses_ahead: list[float], **state: Any) -> Choice:
    """Half a lap ahead of CHOSEN, by hand: (3, 8) + ½ ((3, 8) − (1, 0)) = (4, 12)."""
    models = [CHOSEN, LOWEST, torch.full((2,), np.nan)]
    entries = [Entry(i, 9 - i, model) for i, model in enumerate(models)]
    losses = [Losses(torch.tensor(row)) for row in LOSSES]
    candidates = Candidates(entries, losses, OWN, Batch(np.arange(2)))
    selected = Selection([*models, OWN], 0)
    generator = extrapolated(candidates, Choice(selected, selected, state), 0.5)
    answer: Any = None
    while True:
        try:
            request = generator.send(answer)
        except StopIteration as end:
            choice: Choice = end.value
            return choice
        if isinstance(request, Combine):
            answer = request.answer()
        else:
            assert isinstance(request, Score)
            assert request.model.tolist() == [4.0, 12.0]
            answer = Losses(torch.tensor(losses_ahead))


def test_a_turn_begins_ahead_if_no_stored_model_is_as_good() -> None:
    choice = begun([1.9, 2.0], start="elsewhere", more=1)
    assert tensor_of(choice.model).tolist() == [4.0, 12.0]
    assert choice.selected.index == 0
    assert choice.state["start"].tolist() == [4.0, 12.0]  # whence a rule measures its own turn
    assert choice.state["more"] == 1


@pytest.mark.parametrize(
    "losses", [[2.0, 2.0], [2.1, 2.1], [np.inf, np.inf], [np.nan, 0.0], [-np.inf, 0.0]]
)
def test_else_where_the_rule_has_chosen(losses: list[float]) -> None:
    """2.1 is below the loss of the model that it is ahead of, but not below the lowest."""
    choice = begun(losses)
    assert tensor_of(choice.model).tolist() == CHOSEN.tolist()
    assert choice.state == {}


def run(folder: Path, scheme: dict[str, Any], **changes: Any) -> Any:
    recipe = parse(
        {
            "ring": {"nodes": 12, "byzantine": 4, "connectivity": 5},
            "scheme": {"rounds": 15, **scheme},
            "learning": {"rate": 0.05},
            "record": {"every": 15},
            **changes,
        }
    )
    return Simulation(set_up(recipe)).run(folder)


@pytest.mark.parametrize("attack", ["gaussian", "drift"])
@pytest.mark.parametrize("rule", ["lowest-loss", "trust"])
def test_nodes_learn_faster_for_an_evaluation_a_turn(
    tmp_path: Path, rule: str, attack: str
) -> None:
    lies = {"attack": {"name": attack}}
    plain = run(tmp_path / "plain", {"rule": rule}, **lies)
    ahead = run(tmp_path / "ahead", {"rule": rule, "extrapolate": 2.0}, **lies)
    assert ahead["loss"]["worst"] < plain["loss"]["worst"]
    turns = plain["work"]["steps"]
    more = ahead["work"]["evaluations"] - plain["work"]["evaluations"]
    assert more == turns * 14 // 15  # in its first round a node has nothing to look back to


@pytest.mark.parametrize("scheme", [{"name": "r-plain"}, {"name": "local"}])
def test_who_judges_no_models_begins_where_it_did(tmp_path: Path, scheme: dict[str, Any]) -> None:
    plain = run(tmp_path / "plain", scheme)
    ahead = run(tmp_path / "ahead", {**scheme, "extrapolate": 2.0})
    assert ahead["model_sha256"] == plain["model_sha256"]
