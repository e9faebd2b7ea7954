"""A recipe written down is the same recipe; a varied one is its neighbour."""

import tomllib
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings

from basil.attack import ATTACKS
from basil.protocol.schemes import SCHEMES
from basil.recipe import NO_ATTACK, Recipe, parse, to_toml, vary

from recipe_strategies import recipes


def resolved(recipe):
    """The recipe with S and d written out, as a run folder keeps it."""
    d = recipe.reach - recipe.connectivity
    ring = replace(recipe.ring, connectivity=recipe.connectivity, dropouts=d)
    return replace(recipe, ring=ring)


@settings(max_examples=60, deadline=None)
@given(recipes())
def test_a_recipe_written_down_and_read_again_is_the_same(recipe):
    again = parse(tomllib.loads(to_toml(recipe)))
    assert again == resolved(recipe)
    assert (again.connectivity, again.reach) == (recipe.connectivity, recipe.reach)
    assert parse(tomllib.loads(to_toml(again))) == again


def test_the_length_of_rows_is_written_out():
    ring = {"nodes": 20, "byzantine": 6, "connectivity": 4, "placement": "rows"}
    assert parse(tomllib.loads(to_toml(parse({"ring": ring})))).ring.row == 3
    ring |= {"byzantine": 0, "connectivity": 1}  # no row at all
    assert parse(tomllib.loads(to_toml(parse({"ring": ring})))).ring.row is None


def test_characters_that_json_and_toml_write_differently_survive():
    strange = 'quote " backslash \\ tab \t line\n delete \x7f emoji \U0001f600 é'
    recipe = parse({"attack": {"name": "garbage", "kind": strange}})
    assert parse(tomllib.loads(to_toml(recipe))).attack.options == {"kind": strange}


def test_the_plan_of_a_comparison_is_no_part_of_a_run():
    planned = parse({"compare": {"schemes": ["basil"], "seeds": [1, 2]}})
    assert to_toml(planned) == to_toml(Recipe(**vars(parse({}))))


# -- vary -------------------------------------------------------------------------------------

GAUSSIAN = {
    "ring": {"nodes": 10, "byzantine": 2},
    "scheme": {"name": "basil", "rule": "newest", "rounds": 7},
    "attack": {"name": "gaussian", "std": 4.0, "start": 3},
}


def test_the_same_scheme_attack_and_seed_give_the_same_recipe():
    recipe = parse(GAUSSIAN)
    assert vary(recipe, "basil", "gaussian", 0) == resolved(recipe)


def test_another_attack_leaves_the_options_and_the_start_of_the_first_behind():
    varied = vary(parse(GAUSSIAN), "basil", "hidden", 0)
    assert varied.attack.name == "hidden"
    assert varied.attack.options == ATTACKS.options("hidden")
    assert varied.attack.start is None
    assert vary(parse(GAUSSIAN), "basil", NO_ATTACK, 0).attack.options == {}


def test_an_option_of_the_same_name_is_another_option(monkeypatch):
    def louder(view, *, std: float = 9.0, beat: int = 2):
        """Gaussian noise with a rhythm."""

    monkeypatch.setitem(ATTACKS._entries, "louder", louder)
    varied = vary(parse(GAUSSIAN), "basil", "louder", 0)
    assert varied.attack.options == {"std": 9.0, "beat": 2}


def test_another_scheme_and_seed_change_nothing_else():
    recipe = parse(GAUSSIAN)
    varied = vary(recipe, "r-plain", "gaussian", 8)
    assert (varied.scheme.name, varied.seed) == ("r-plain", 8)
    name, options = recipe.scheme.name, SCHEMES.options("basil")
    back = replace(varied, seed=0, scheme=replace(varied.scheme, name=name, options=options))
    assert back == resolved(recipe)


@cache
def made_directly(scheme, attack):
    return vary(parse({}), scheme, attack, 1)


# Schemes and attacks have sections of their own in a recipe, so it is enough to vary each alone.
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_can_be_varied_to_every_other(scheme):
    for other in SCHEMES:
        assert vary(made_directly(scheme, "alie"), other, "alie", 1) == made_directly(other, "alie")


@pytest.mark.parametrize("attack", [NO_ATTACK, *ATTACKS])
def test_every_attack_can_be_varied_to_every_other(attack):
    for lie in (NO_ATTACK, *ATTACKS):
        assert vary(made_directly("ubar", attack), "ubar", lie, 1) == made_directly("ubar", lie)
