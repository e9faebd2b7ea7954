"""Short names for what a recipe says, so that a run can be found by what it computes."""

import hashlib
import json
import re
from typing import Any

from basil.attack import ATTACKS
from basil.recipe.read import options_of
from basil.recipe.schema import NO_ATTACK, OPTION_TABLES, SECTIONS, Recipe, names_in
from basil.recipe.write import plain, to_tree

DIGITS = 12  # 48 bits: that two of a million runs meet has a chance of 0.2 %


def fingerprint(recipe: Recipe) -> str:
    """Equal recipes have equal fingerprints, on every machine.

    What has its default value is left out, so that a key which Basil learns later changes none.
    Of entries that Basil does not ship the source counts, too.
    """
    said = _said(to_tree(recipe))
    if code := code_of(recipe):
        said["code"] = code
    text = json.dumps(said, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def label(recipe: Recipe, *before: str) -> str:
    """basil-gaussian-seed0, for the name of a folder."""
    words = (*before, recipe.scheme.name, recipe.attack.name, f"seed{recipe.seed}")
    return re.sub(r"[^\w.+-]+", "-", "-".join(words))  # others' entries have colons and slashes


def code_of(recipe: Recipe) -> dict[str, str]:
    """Of each entry that the recipe names and Basil does not ship: a digest of its source."""
    named = [
        (table, name)
        for section, tables in OPTION_TABLES.items()
        for key, table in tables
        for name in names_in(getattr(getattr(recipe, section), key))
    ]
    then = recipe.attack.options.get("then")
    found = {
        f"{table.kind} {name}": table.digest(name)
        for table, name in [*named, *([(ATTACKS, then)] if then else [])]
        if name and (table is not ATTACKS or name != NO_ATTACK)
    }
    return {entry: digest for entry, digest in found.items() if digest is not None}


def _said(tree: dict[str, Any]) -> dict[str, Any]:
    """The tree without defaults."""
    said: dict[str, Any] = {"seed": tree["seed"]}
    for name, kind in SECTIONS.items():
        if name not in tree:
            continue
        defaults = plain(kind()) | options_of(name, tree[name])
        said[name] = {
            key: value
            for key, value in tree[name].items()
            if value != defaults.get(key) and not (key == "events" and not value)
        }
    return {name: values for name, values in said.items() if values != {}}
