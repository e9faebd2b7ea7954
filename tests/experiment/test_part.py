"""One node's part of an experiment is what the whole experiment gives that node, and no more."""

from typing import Any

import numpy as np
import pytest

from basil.data import load
from basil.errors import UserError
from basil.experiment import Experiment, Own, Part
from basil.recipe import parse
from basil.recipe.schema import AttackPart, Recipe

N = 6
SHARED = {"alpha": 0.1, "batches": 2, "sensitive": "classes", "classes": "0 1"}


def recipe(**sections: Any) -> Recipe:
    usual = {
        "ring": {"nodes": N, "byzantine": 2, "connectivity": 3},
        "learning": {"model": "softmax", "batch": 8},
        "data": {"partition": "dirichlet"},
    }
    return parse({**usual, **sections})


def alone(settings: Recipe, node: int, role: AttackPart | None = None) -> Experiment:
    part = Part(settings, load("digits", settings.seed), node, role or AttackPart())
    return Experiment(settings, Own(dataset=part.data), cast=part)


@pytest.mark.parametrize("node", range(N))
@pytest.mark.parametrize("sharing", [{}, SHARED, {**SHARED, "dummies": "held-out"}])
def test_a_node_alone_draws_the_same_batches(node: int, sharing: dict[str, Any]) -> None:
    settings = recipe(sharing=sharing)
    together, mine = Experiment(settings), alone(settings, node)
    assert mine.cast.ring.order == together.cast.ring.order
    assert len(mine.cast.train) == len(together.cast.local[node])  # nobody else's
    if sharing:  # as it would be after the sharing
        received = together.cast.received[node]
        x, y = together.cast.train.x[received], together.cast.train.y[received]
        assert isinstance(mine.cast, Part)
        mine.cast.take_in(type(mine.cast.train)(x, y))
        mine = Experiment(settings, Own(dataset=mine.cast.data), cast=mine.cast)
    for k in (1, 2, 7):
        for ours, theirs in zip(mine._draw(node, k), together._draw(node, k), strict=True):
            for a, b in zip(
                mine.compute.pool.inputs(ours), together.compute.pool.inputs(theirs), strict=True
            ):
                assert a.equal(b)


def test_what_a_node_offers_is_its_own_and_not_sensitive() -> None:
    settings = recipe(sharing=SHARED)
    together = Experiment(settings)
    for node in range(N):
        mine = alone(settings, node).cast
        assert isinstance(mine, Part)
        labels = together.cast.train.y[together.cast.local[node]]
        assert sorted(mine.offered.y) == sorted(label for label in labels if label > 1)


def test_a_node_lies_as_it_is_told_whatever_the_recipe_says() -> None:
    settings = recipe(attack={"name": "gaussian"}, scheme={"name": "ubar"})
    cast = Experiment(settings).cast
    liar, honest = min(cast.byzantine), min(cast.benign)
    assert liar not in alone(settings, liar).cast.byzantine
    mine = alone(settings, honest, AttackPart("label-flip", None, {"source": -1, "target": -1}))
    assert mine.cast.byzantine == cast.byzantine | {honest}
    assert mine.cast.graph == cast.graph  # which all must agree on
    before, after = mine.cast.samples(honest, 0), mine.cast.samples(honest, 1)
    assert np.array_equal(9 - mine.cast.train.y[before], mine.cast.train.y[after])


def test_a_scheme_in_which_one_node_holds_all_data_has_no_peers() -> None:
    with pytest.raises(UserError, match="one node holds all data, so it has no peers"):
        alone(recipe(scheme={"name": "centralised"}), 0)
