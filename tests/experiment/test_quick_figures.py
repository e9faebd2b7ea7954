"""Figures at their quick size: what they ask for can be had of the few samples that are there."""

from dataclasses import replace

import pytest

from basil.data.sources import SOURCES
from basil.experiment import Custom, Machine, set_up
from basil.recipe import Recipe
from basil.recipe.figure import beyond_the_paper, drawn, figures, load_figure


def parts(recipe: Recipe) -> str:
    """What decides who gets which samples."""
    return str((recipe.data, recipe.ring, recipe.graph, recipe.sharing))


@pytest.mark.parametrize("name", [*figures(), *beyond_the_paper()])
def test_quick_runs_can_be_set_up(name: str) -> None:
    recipes = [curve.recipe for curve in drawn(load_figure(name), quick=True)]
    at_hand = [r for r in recipes if SOURCES.get(r.data.dataset, "your own") is None]
    for recipe in {parts(recipe): recipe for recipe in at_hand}.values():
        for seed in range(3):
            setup = set_up(replace(recipe, seed=seed), Custom(), Machine("cpu"))
            assert len(setup.node_data.draw(0, 1)) > 0
