"""One node's part of an experiment is what the whole experiment gives that node, and no more."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from basil.data import Dataset, Samples, load
from basil.errors import UserError
from basil.experiment import Custom, LocalNode, Setup, local_node, set_up
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


def one(settings: Recipe, node: int, role: AttackPart | None = None) -> LocalNode:
    return local_node(settings, load("digits", settings.seed), node, role or AttackPart())


def alone(local: LocalNode) -> Setup:
    settings = local.participants.recipe
    return set_up(settings, Custom(dataset=local.data), held=local.node_data)


@pytest.mark.parametrize("node", range(N))
@pytest.mark.parametrize("sharing", [{}, SHARED, {**SHARED, "dummies": "held-out"}])
@pytest.mark.parametrize("augmented", [False, True])
def test_a_node_alone_draws_the_same_batches(
    node: int, sharing: dict[str, Any], augmented: bool
) -> None:
    settings = recipe(sharing=sharing, data={"partition": "dirichlet", "augment": augmented})
    together, local = set_up(settings), one(settings, node)
    mine = alone(local)
    assert mine.participants.ring.order == together.participants.ring.order
    assert len(mine.node_data.train) == len(together.node_data.local[node])  # nobody else's
    if sharing:  # as it would be after the sharing
        received = together.node_data.received[node]
        x, y = together.node_data.train.x[received], together.node_data.train.y[received]
        local.take_in(type(mine.node_data.train)(x, y))
        mine = alone(local)
    for k in (1, 2, 7):
        for ours, theirs in zip(
            mine.node_data.draw(node, k), together.node_data.draw(node, k), strict=True
        ):
            for a, b in zip(
                mine.compute.pool.inputs(ours), together.compute.pool.inputs(theirs), strict=True
            ):
                assert a.equal(b)


def test_dummies_are_everybodys_whatever_data_each_has() -> None:
    settings = recipe(sharing={"alpha": 0.1, "batches": 2})
    data = load("digits", 0)
    other = replace(data, train=Samples(data.train.x[::-1].copy(), data.train.y[::-1].copy()))
    mine, theirs = (
        local_node(settings, own, node, AttackPart(), own=True).public_samples
        for node, own in enumerate((data, other))
    )
    assert mine is not None
    assert theirs is not None
    assert np.array_equal(mine.x, theirs.x)
    assert np.array_equal(mine.y, theirs.y)
    assert set(mine.y) == set(range(10))


def test_tokens_are_not_shared() -> None:
    x = np.arange(240).reshape(60, 4) % 5
    part, names = Samples(x, x), tuple("abcde")
    settings = recipe(sharing={"alpha": 0.5}, data={"partition": "iid"}, learning={"batch": 2})
    data = Dataset("tokens", part, part, 5, names, (), ())
    for own in (True, False):
        with pytest.raises(UserError, match=r"^sharing.alpha = 0.5: tokens"):
            local_node(settings, data, 0, AttackPart(), own=own)


def test_what_a_node_offers_is_its_own_and_not_sensitive() -> None:
    settings = recipe(sharing=SHARED)
    together = set_up(settings)
    for node in range(N):
        mine = one(settings, node)
        assert mine.offered is not None
        labels = together.node_data.train.y[together.node_data.local[node]]
        assert sorted(mine.offered.y) == sorted(label for label in labels if label > 1)


def test_a_node_lies_as_it_is_told_whatever_the_recipe_says() -> None:
    settings = recipe(attack={"name": "gaussian"}, scheme={"name": "ubar"})
    everybody = set_up(settings).participants
    byzantine, honest = min(everybody.byzantine), min(everybody.benign)
    assert byzantine not in one(settings, byzantine).participants.byzantine
    mine = one(settings, honest, AttackPart("label-flip", options={"source": -1, "target": -1}))
    assert mine.participants.byzantine == everybody.byzantine | {honest}
    assert mine.participants.graph == everybody.graph  # which all must agree on
    before, after = mine.node_data.samples(honest, 0), mine.node_data.samples(honest, 1)
    assert np.array_equal(9 - mine.node_data.train.y[before], mine.node_data.train.y[after])


def test_a_scheme_in_which_one_node_holds_all_data_has_no_peers() -> None:
    with pytest.raises(UserError, match="one node holds all data, so it has no peers"):
        one(recipe(scheme={"name": "centralised"}), 0)
