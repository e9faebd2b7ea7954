"""Recipes of any kind, for hypothesis."""

from typing import Any

from hypothesis import strategies as st

from basil.attack import ATTACKS
from basil.attack.basket_faults import FAULTS
from basil.data import DATASETS, PARTITIONS
from basil.data.sensitive import SENSITIVE
from basil.learning.models import MODELS
from basil.learning.schedule import SCHEDULES
from basil.protocol.graph.mixing import MIXINGS
from basil.protocol.rules import RULES
from basil.protocol.schemes import SCHEMES
from basil.recipe import NO_ATTACK, parse
from basil.recipe.check import SLOWEST
from basil.recipe.values import REAL
from basil.table import Table
from basil.topology import GRAPHS, WEIGHTS

# Of option values nothing but the type is checked here: what they mean is the functions' business.
VALUES = {
    bool: st.booleans(),
    int: st.integers(-(2**62), 2**62),
    float: st.floats(-REAL, REAL),
    str: st.text(st.characters(exclude_categories=["Cs"])),  # TOML has no lone surrogates
}
positive = st.floats(SLOWEST, REAL)
not_negative = st.floats(0, REAL)


def chosen(**tables):
    """A choice from each table, with some of the options that come with it."""

    @st.composite
    def section(draw):
        found: dict[str, Any] = {}
        options: dict[str, Any] = {}
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
        "graph": draw(chosen(name=GRAPHS, weights=WEIGHTS, mixing=MIXINGS)),
        "time": {"forward": draw(seconds), "distance": draw(seconds), "megabits": draw(positive)},
        "record": {"models": draw(st.booleans()), "checkpoint": draw(not_negative)},
    }
    return parse(tree)
