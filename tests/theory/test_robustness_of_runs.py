"""Runs of Basil itself against the bound: nodes with losses ½ ‖w − c_i‖², c_i chosen.

A node's samples are the rows of √d I with the targets √d c_i, so its mean squared error has one
curvature, I, and the minimiser c_i.  Nodes score and train on all of their samples: ε = 0.  Every
second node is Byzantine, S = 2, and minimisers are at ±e by turns: where the bound is met.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import basil
from basil import register
from basil.attack import ATTACKS
from basil.data import PARTITIONS
from basil.experiment import set_up
from basil.experiment.machine import Custom
from basil.recipe import parse
from basil.record.recorder import Recorder
from basil.theory import Losses, ring_error, worst_error

Array = NDArray[np.float64]
NODES, SIZE, S = 12, 2, 2
LOSSES = Losses(1.0, 0.2, common_curvature=True)


def recipe(attack: str) -> dict[str, Any]:
    spread = {"placement": "rows", "row": 1}
    return {
        "data": {"partition": "in-order"},
        "ring": {"nodes": NODES, "byzantine": NODES // 2, "connectivity": S, **spread},
        "scheme": {"rounds": 12},
        "learning": {
            "model": "linear",
            "schedule": "constant",
            "rate": LOSSES.rate,
            "batch": SIZE,
        },
        "attack": {"name": attack},
        "record": {"every": 12, "models": False},
    }


def data(centres: Array) -> basil.Dataset:
    x = np.tile(math.sqrt(SIZE) * np.eye(SIZE, dtype=np.float32), (NODES, 1))
    y = (math.sqrt(SIZE) * centres).astype(np.float32).reshape(-1)
    part = basil.Samples(x, y)
    return basil.Dataset("quadratics", part, part, 0, (), (0.0,), (1.0,))


@pytest.fixture
def errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of runs under the named attacks, and the flags of their ring."""
    for table in (ATTACKS, PARTITIONS):
        monkeypatch.setattr(table, "_foreign", {})
    register.partition("in-order")(
        lambda labels, nodes, rng: np.split(np.arange(len(labels)), nodes)
    )
    centres = np.zeros((NODES, SIZE))
    known = set_up(parse(recipe("gaussian")), Custom(dataset=data(centres))).participants
    order, byzantine = list(known.ring.order), known.byzantine
    benign = [node for node in order if node not in byzantine]
    for turn, node in enumerate(benign):
        centres[node, 0] = (-1) ** turn

    def mirror(view: Any) -> dict[int, torch.Tensor]:
        """The nearest benign predecessor's model, mirrored at the receiver's minimiser."""
        lies = {}
        for node in set(view.receivers) - byzantine:
            before = view.benign[benign[benign.index(node) - 1]]
            centre = torch.as_tensor(centres[node], dtype=before.dtype)
            lies[node] = centre + 0.9999 * (centre - before)  # rounding must not decide
        return lies

    register.attack("mirror", omniscient=True)(mirror)
    last: dict[int, Array] = {}
    original = Recorder.record

    def record(self: Recorder, node: int, turn: Any, now: float) -> None:
        last[node] = turn.model.double().numpy()
        original(self, node, turn, now)

    monkeypatch.setattr(Recorder, "record", record)

    def error(attack: str) -> float:
        basil.run(recipe(attack), dataset=data(centres), out=tmp_path / attack)
        return math.sqrt(np.mean([np.sum(last[node] ** 2) for node in benign]))

    return [node in byzantine for node in order], error


def test_no_attack_gets_past_the_bound_and_the_worst_one_meets_it(errors) -> None:
    flags, error = errors
    bound = ring_error(flags, S, LOSSES)
    assert bound == pytest.approx(worst_error(LOSSES))  # every turn hears a Byzantine node
    others = [error(name) for name in ("gaussian", "inverse", "drift", "stall")]
    assert 0 < min(others) <= max(others) < 1  # these do not know the losses
    assert 0.999 * bound < error("mirror") <= bound
