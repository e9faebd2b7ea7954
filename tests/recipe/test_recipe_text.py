"""A recipe written down is the same recipe; a varied one is its neighbour."""

import tomllib
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basil.attack import ATTACKS
from basil.attack.basket_faults import FAULTS
from basil.data import DATASETS, PARTITIONS
from basil.data.sensitive import SENSITIVE
from basil.learning.models import MODELS
from basil.learning.schedule import SCHEDULES
from basil.protocol.rules import RULES
from basil.protocol.schemes import SCHEMES
from basil.recipe import NO_ATTACK, Recipe, parse, to_toml, vary
from basil.table import Table
from basil.topology import GRAPHS, WEIGHTS

# Of option values nothing but the type is checked here: what they mean is the functions' business.
VALUES = {
    bool: st.booleans(),
    int: st.integers(-(2**62), 2**62),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(st.characters(exclude_categories=["Cs"])),  # TOML has no lone surrogates
}
positive = st.floats(0, exclude_min=True, allow_infinity=False)
not_negative = st.floats(0, allow_infinity=False)


def chosen(**tables):
    """A choice from each table, with some of the options that come with it."""

    @st.composite
    def section(draw):
        found, options = {}, {}
        for key, table in tables.items():
            names = [*table, NO_ATTACK] if table is ATTACKS else list(table)
            found[key] = name = draw(st.sampled_from(names))
            options.update({} if name == NO_ATTACK else table.options(name))
        for key, default in options.items():
            if draw(st.booleans()):
                found[key] = draw(VALUES[type(default)])
        return found

    return section()


@st.composite
def rings(draw, rounds):
    nodes = draw(st.integers(2, 12))
    ring = {
        "nodes": nodes,
        "byzantine": draw(st.integers(0, nodes - 1)),
        "placement": draw(st.sampled_from(["random", "row", "rows"])),
    }
    if ring["placement"] == "rows":  # for one row there is always room
        ring["row"] = draw(st.integers(max(1, ring["byzantine"]), 20))
    events = []
    for node in draw(st.sets(st.integers(0, nodes - 2))):  # the last one stays
        k = draw(st.integers(1, rounds))
        while k <= rounds:
            events.append({"node": node, "leaves": k})
            if draw(st.booleans()):
                break  # for good
            events[-1]["returns"] = back = k + draw(st.integers(1, 5))
            k = back + draw(st.integers(1, 9))
    if events:
        ring["events"] = draw(st.permutations(events))
    if draw(st.booleans()):
        ring["connectivity"] = draw(st.integers(1, nodes - 1))
    if draw(st.booleans()):
        ring["dropouts"] = draw(st.integers(0, 3))
    return ring


@st.composite
def recipes(draw):
    rounds = draw(st.integers(1, 30))
    seconds = st.one_of(not_negative, st.just("measured"))
    attack = draw(chosen(name=ATTACKS))
    if "then" in attack:  # the options of what it turns into stand beside it
        others = {name: ATTACKS[name] for name in ATTACKS if name != "betrayal"}
        then = draw(chosen(name=Table("attack", others)))
        attack = {**then, **attack, "then": then["name"]}
    if draw(st.booleans()):
        attack["start"] = draw(st.integers(1, 40))
    tree = {
        "seed": draw(st.integers(-(2**62), 2**62)),
        "data": draw(chosen(dataset=DATASETS, partition=PARTITIONS)),
        "ring": draw(rings(rounds)),
        "scheme": draw(chosen(name=SCHEMES, rule=RULES))
        | {"rounds": rounds, "scoring": draw(st.sampled_from(["arrival", "turn"]))},
        "learning": draw(chosen(model=MODELS, schedule=SCHEDULES))
        | {"rate": draw(positive), "batch": draw(st.integers(1, 2**40))},
        "attack": attack,
        "sharing": draw(chosen(sensitive=SENSITIVE, fault=FAULTS))
        | {"opening": draw(st.booleans()), "public": draw(st.floats(0, 1))},
        "graph": draw(chosen(name=GRAPHS, weights=WEIGHTS)),
        "time": {"forward": draw(seconds), "distance": draw(seconds), "megabits": draw(positive)},
        "record": {"models": draw(st.booleans()), "checkpoint": draw(not_negative)},
    }
    return parse(tree)


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
    back = replace(varied, seed=0, scheme=replace(varied.scheme, name="basil"))
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
