"""What a recipe may say.

A recipe is TOML with the sections below.  Every key has a default; a key, type or value that is
wrong is a `UserError` that names the file, the section and what would be right.  Options of the
chosen data set, partition, model, schedule, scheme, rule and attack stand in the section that names
them, e.g. `std` in [attack]: which there are is read off the functions in their tables.
"""

from basil.recipe.fingerprint import code_of, fingerprint, label
from basil.recipe.read import Changes, Source, find, load, parse, shipped
from basil.recipe.schema import MEASURED, NO_ATTACK, Event, Recipe
from basil.recipe.warn import warnings
from basil.recipe.write import to_toml, to_tree, vary, with_own_data, with_timing

__all__ = [
    "MEASURED",
    "NO_ATTACK",
    "Changes",
    "Event",
    "Recipe",
    "Source",
    "code_of",
    "find",
    "fingerprint",
    "label",
    "load",
    "parse",
    "shipped",
    "to_toml",
    "to_tree",
    "vary",
    "warnings",
    "with_own_data",
    "with_timing",
]
