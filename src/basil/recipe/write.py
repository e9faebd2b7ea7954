"""From a `Recipe` back to TOML, and to its neighbours."""

import json
from dataclasses import replace
from typing import Any

from basil.data import OWN, PARTITIONS, Dataset
from basil.recipe.read import parse, switch
from basil.recipe.schema import SECTIONS, Recipe


def to_tree(recipe: Recipe) -> dict[str, Any]:
    """The recipe with every default filled in; `parse` reads it back."""
    tree: dict[str, Any] = {"seed": recipe.seed}
    for name in SECTIONS:
        if name == "compare":  # a plan for many runs, no part of any
            continue
        part = getattr(recipe, name)
        values = plain(part) | getattr(part, "options", {})
        if name == "ring":
            values["connectivity"] = recipe.connectivity
            if part.placement == "rows":
                values["row"] = recipe.row or None
            values["dropouts"] = recipe.reach - recipe.connectivity
            values["events"] = [
                {k: v for k, v in vars(event).items() if v is not None} for event in part.events
            ]
        if name == "record" and not part.metrics:  # as it was before there were any
            del values["metrics"]
        tree[name] = {key: value for key, value in values.items() if value is not None}
    return tree


def plain(part: Any) -> dict[str, Any]:
    """The keys of a section, without the options of what it names."""
    return {key: value for key, value in vars(part).items() if key != "options"}


def to_toml(recipe: Recipe) -> str:
    """The resolved recipe as text."""
    lines: list[str] = []
    for key, value in to_tree(recipe).items():
        if not isinstance(value, dict):
            lines.append(f"{key} = {_scalar(value)}")
            continue
        lines.append(f"\n[{key}]")
        events = value.pop("events", ())
        lines += [f"{k} = {_scalar(v)}" for k, v in value.items()]
        for event in events:
            lines.append(f"[[{key}.events]]")
            lines += [f"{k} = {_scalar(v)}" for k, v in event.items()]
    return "\n".join(lines) + "\n"


def _scalar(value: Any) -> str:
    """JSON's scalars are TOML's, but for surrogate pairs and a bare DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", r"\u007f")


def vary(recipe: Recipe, scheme: str, attack: str, seed: int) -> Recipe:
    """The same experiment with another scheme, attack and seed: for comparisons.

    Options that the new scheme or attack does not have are left behind.
    """
    tree = to_tree(recipe)
    tree["seed"] = seed
    for section, name in (("scheme", scheme), ("attack", attack)):
        if name != tree[section]["name"]:
            switch(tree, f"{section}.name", name)
            if section == "attack":
                tree[section].pop("start", None)
    return parse(tree, f"recipe with scheme {scheme}, attack {attack}")


def with_timing(recipe: Recipe, seconds: dict[str, float]) -> Recipe:
    """The recipe with measured times filled in."""
    return replace(recipe, time=replace(recipe.time, **seconds))


def with_own_data(recipe: Recipe, data: Dataset) -> Recipe:
    """The recipe of a run whose data was brought along: it says so, and which."""
    kept = PARTITIONS.options(recipe.data.partition)
    options = {key: value for key, value in recipe.data.options.items() if key in kept}
    options |= {"name": data.name, "digest": data.sha256[:12]}
    return replace(recipe, data=replace(recipe.data, dataset=OWN, options=options))
