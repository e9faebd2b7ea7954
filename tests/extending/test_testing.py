"""basil.testing passes what Basil ships, and says what is wrong with what is wrong."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import basil
from basil import testing
from basil.data import PARTITIONS
from basil.learning.schedule import SCHEDULES
from basil.protocol.rules import RULES
from basil.topology import GRAPHS


@pytest.mark.parametrize("name", ["gaussian", "hidden", "silent", "stale", "brink", "label-flip"])
def test_attacks_of_each_family_pass(name: str) -> None:
    testing.check_attack(name)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_passes(name: str) -> None:
    testing.check_rule(name)


@pytest.mark.parametrize("name", ["basil", "basil+", "g-plain", "ubar", "local", "centralised"])
def test_schemes_of_each_kind_pass(name: str) -> None:
    testing.check_scheme(name)


@pytest.mark.parametrize("name", PARTITIONS)
def test_every_partition_passes(name: str) -> None:
    testing.check_partition(name)


@pytest.mark.parametrize("name", [name for name in GRAPHS if name != "edges"])
def test_every_graph_passes(name: str) -> None:
    testing.check_graph(name)


def test_data_sets_networks_and_schedules_pass() -> None:
    testing.check_dataset("synthetic", samples=100)
    testing.check_dataset("synthetic", samples=100, task="regression")
    testing.check_model("mlp", hidden=3)
    testing.check_model("linear")
    for name in SCHEDULES:
        testing.check_schedule(name)


# -- what is wrong -------------------------------------------------------------------------------


def in_place(view: basil.View) -> Tensor:
    return view.honest.neg_()


def by_chance(view: basil.View) -> Tensor:
    return torch.randn_like(view.honest)


def double(view: basil.View) -> Tensor:
    return view.honest.double()


def too_long(view: basil.View) -> Tensor:
    return torch.cat([view.honest, view.honest])


@pytest.mark.parametrize(
    ("attack", "sentence"),
    [
        (in_place, "changes a model that it was shown"),
        (by_chance, "makes another lie"),
        (double, "torch.float64, not float32"),
        (too_long, "not one model's vector"),
    ],
)
def test_what_is_wrong_with_an_attack(attack: Any, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        testing.check_attack(attack)


def garbage_too(candidates: basil.Candidates) -> Any:
    """Takes the first, whatever it is worth."""
    return basil.Choice(candidates.models[0], (yield from candidates.choose(first)).selected)


def first(losses: Tensor, means: Tensor) -> Tensor:
    return torch.tensor(0)


def test_what_is_wrong_with_a_rule() -> None:
    with pytest.raises(AssertionError, match="of losses"):
        testing.check_rule(garbage_too)


def two_short(labels: Any, nodes: int, rng: Any) -> Any:
    return np.array_split(np.arange(len(labels) - 2), nodes)


def test_what_is_wrong_with_a_partition() -> None:
    with pytest.raises(AssertionError, match="exactly one node"):
        testing.check_partition(two_short)


def pair(people: basil.Population, stream: Any) -> Any:
    return [(0, 1)]


def test_what_is_wrong_with_a_graph() -> None:
    with pytest.raises(basil.UserError, match="pair"):
        testing.check_graph(pair)


def unlabelled(seed: int) -> basil.Dataset:
    x, y = np.zeros((8, 3), np.float32), np.arange(8)
    samples = basil.Samples(x, y)
    return basil.Dataset("unlabelled", samples, samples, 3, ("a", "b", "c"), (0.0,), (1.0,))


def test_what_is_wrong_with_a_data_set() -> None:
    with pytest.raises(AssertionError, match="are 0 to 7; with classes = 3 they are 0 to 2"):
        testing.check_dataset(unlabelled)


class Wide(nn.Module):
    """A class does for a network, too; its own parameter comes from the run's seed."""

    def __init__(self, shape: tuple[int, ...], classes: int, *, width: int = 4) -> None:
        super().__init__()
        self.inner = nn.Parameter(torch.randn(width, shape[0]))
        self.outer = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.outer(torch.relu(x @ self.inner.T))
        return result


def test_a_network_with_parameters_of_its_own_starts_from_the_seed() -> None:
    testing.check_model(Wide, width=3)


def shrinking(k: int, rate: float, rounds: int) -> float:
    return rate * (1 - k)


def test_what_is_wrong_with_a_schedule() -> None:
    with pytest.raises(AssertionError, match="in round 2 of 10"):
        testing.check_schedule(shrinking)


@pytest.mark.parametrize(
    ("name", "options"), [("sgd", {"momentum": 0.9, "clip": 1.0}), ("adamw", {})]
)
def test_every_optimizer_passes(name: str, options: dict[str, float]) -> None:
    testing.check_optimizer(name, **options)


def test_an_optimizer_that_changes_its_state_in_place_does_not() -> None:
    def hasty(model: Tensor, gradient: Tensor, rate: float, remembered: dict[str, Any]) -> Tensor:
        momentum: Tensor = remembered.setdefault("momentum", torch.zeros_like(model))
        momentum.add_(gradient)
        return model - rate * momentum

    with pytest.raises(AssertionError, match="in place"):
        testing.check_optimizer(hasty)
