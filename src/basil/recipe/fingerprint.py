"""A short name for all that a recipe says, so that a run can be found by what it computes."""

import hashlib
import json
from dataclasses import fields
from typing import Any

from basil.recipe.read import options_of
from basil.recipe.schema import SECTIONS, Recipe
from basil.recipe.write import to_tree

DIGITS = 12  # 48 bits: that two of a million runs meet has a chance of 0.2 %


def fingerprint(recipe: Recipe) -> str:
    """Equal recipes have equal fingerprints, on every machine.

    What has its default value is left out, so that a key which Basil learns later changes none.
    """
    text = json.dumps(_said(to_tree(recipe)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _said(tree: dict[str, Any]) -> dict[str, Any]:
    """The tree without defaults."""
    said: dict[str, Any] = {"seed": tree["seed"]}
    for name, kind in SECTIONS.items():
        if name not in tree:
            continue
        part = kind()
        defaults = {f.name: getattr(part, f.name) for f in fields(part) if f.name != "options"}
        defaults |= options_of(name, tree[name])
        said[name] = {
            key: value
            for key, value in tree[name].items()
            if value != defaults.get(key) and not (key == "events" and not value)
        }
    return {name: values for name, values in said.items() if values != {}}
