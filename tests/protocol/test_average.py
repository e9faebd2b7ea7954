"""What a node shows: a mean of models where that is better, and its own model where it is not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from basil.experiment import Simulation, set_up
from basil.learning.pool import Batch
from basil.learning.promises import Losses
from basil.protocol.average import averaged
from basil.protocol.memory import Entry
from basil.protocol.requests import Combine, Score
from basil.protocol.rules import Candidates
from basil.recipe import parse

X = torch.tensor([4.0, 0.0])
LOSSES = [
    [1.0, 2.0, 3.0, 4.0],  # the lowest
    [1.1, 1.9, 3.2, 4.0],  # t = 0.05 / (0.13 / 2) = 0.8: near
    [2.0, 3.1, 4.0, 5.1],  # t = 1.05 / (0.06 / 2) = 36: not near
    [np.inf] * 4,  # of a model that is not finite
]
STORED = [[1.0, 3.0], [1.0, 3.0], [9.0, 9.0], [np.nan, np.inf]]


def shown(loss_of_the_mean: list[float]) -> Tensor:
    """By X, whose losses are 1, and four stored models.  By hand the mean is (2, 2)."""
    entries = [Entry(i, 9 - i, torch.tensor(model)) for i, model in enumerate(STORED)]
    losses = [Losses(torch.tensor(row)) for row in LOSSES]
    generator, answer = averaged(Candidates(entries, losses, X, Batch(np.arange(4))), X), None
    while True:
        try:
            request: Any = generator.send(answer)
        except StopIteration as end:
            found: Tensor = end.value
            return found
        match request:
            case Combine():
                answer = request.answer()
            case Score() if request.model is X:
                answer = Losses(torch.ones(4))
            case Score():
                assert request.model.tolist() == [2.0, 2.0]
                answer = Losses(torch.tensor(loss_of_the_mean))


def test_the_mean_of_what_is_near_if_its_loss_is_lower() -> None:
    assert shown([0.9, 1.0, 1.0, 1.0]).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("losses", [[1.1, 1.0, 1.0, 1.0], [1.0] * 4, [np.inf] * 4, [np.nan] * 4])
def test_else_ones_own(losses: list[float]) -> None:
    assert shown(losses).tolist() == X.tolist()


def small(**scheme: Any) -> dict[str, Any]:
    return {
        "data": {"dataset": "digits", "partition": "sorted"},
        "ring": {"nodes": 8, "byzantine": 2, "connectivity": 4},
        "sharing": {"alpha": 0.1, "batches": 3},
        "scheme": {"rounds": 10, "by_class": True, **scheme},
        "learning": {"model": "softmax", "batch": 20, "rate": 0.3},
        "attack": {"name": "gaussian"},
        "record": {"every": 4},
    }


def test_on_unlike_data_nodes_differ_less_and_training_is_as_before(tmp_path: Path) -> None:
    ran = {
        mean: Simulation(set_up(parse(small(average=mean)))).run(tmp_path / str(mean))
        for mean in (False, True)
    }
    chosen = [(tmp_path / name / "selections.csv").read_text() for name in ("False", "True")]
    assert chosen[0] == chosen[1]
    plain, mean = (ran[each]["accuracy"] for each in (False, True))
    assert mean["mean"] > plain["mean"]
    assert mean["mean"] - mean["worst"] < plain["mean"] - plain["worst"]
