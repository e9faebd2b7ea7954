"""A run is found by what its recipe says."""

from typing import Any

from hypothesis import given, settings

from basil.recipe import fingerprint, parse, to_tree

from recipe_strategies import recipes

TREE = {"ring": {"nodes": 6, "byzantine": 1}, "attack": {"name": "gaussian"}}


def test_what_is_left_out_counts_as_its_default():
    """So a key that a later Basil adds, with a default, changes no fingerprint of today."""
    spelt_out = to_tree(parse(TREE))
    assert fingerprint(parse(spelt_out)) == fingerprint(parse(TREE))
    assert spelt_out["learning"].pop("local_epochs") == 0  # as if it were not known yet
    assert spelt_out["attack"].pop("std") == 1.0
    assert fingerprint(parse(spelt_out)) == fingerprint(parse(TREE))


def test_it_does_not_change_from_version_to_version():
    """sha256('{"attack": {"name": "gaussian"}, "ring": {"byzantine": 1, "connectivity": 2,
    "dropouts": 0, "nodes": 6}, "seed": 0}'), as `sha256sum` has it: run folders are found by it."""
    assert fingerprint(parse(TREE)) == "0885cac42854"


def test_whatever_differs_shows():
    changes: list[dict[str, Any]] = [
        {"seed": 1},
        {"learning": {"rate": 0.031}},
        {"attack": {"name": "gaussian", "std": 2.0}},
        {"attack": {"name": "none"}},
        {"ring": {"nodes": 6, "byzantine": 1, "connectivity": 3}},
        {"record": {"every": 1}},
        {"ring": {"nodes": 6, "byzantine": 1, "events": [{"node": 1, "leaves": 2}]}},
    ]
    found = {fingerprint(parse(TREE | change)) for change in changes}
    assert len(found | {fingerprint(parse(TREE))}) == len(changes) + 1


@settings(max_examples=20, deadline=None)
@given(recipes(), recipes())
def test_equal_recipes_have_equal_ones_and_others_have_others(one, other):
    assert fingerprint(parse(to_tree(one))) == fingerprint(one)
    same = to_tree(one) == to_tree(other)
    assert (fingerprint(one) == fingerprint(other)) == same
