"""From TOML to a checked `Recipe`."""

import difflib
import os.path
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Set
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints
from warnings import warn

from basil.attack import ATTACKS
from basil.attack import options_of as attack_options
from basil.errors import UserError
from basil.foreign import look_in
from basil.recipe.check import check
from basil.recipe.schema import NO_ATTACK, OPTION_TABLES, SECTIONS, Event, Recipe, names_in
from basil.recipe.values import known_keys, shown, typed

DEEPEST = 20  # tables and lists within each other: a recipe needs four
PLANS = ("figure", "sweep")  # what else a file may hold: see `recipe.figure`, `recipe.sweep`
Source = str | Path | Mapping[str, Any]
"""A file, the name of one that ships with Basil, or what such a file holds."""
Changes = Iterable[str] | Mapping[str, Any]
"""`section.key=value` each, or {"section.key": value}."""


def parse(tree: Mapping[str, Any], source: str = "recipe") -> Recipe:
    """A recipe from a tree of TOML values, checked."""
    known_keys(tree, {"seed": 0, **SECTIONS}, source)
    sections = {}
    for name, kind in SECTIONS.items():
        values = tree.get(name, {})
        if not isinstance(values, Mapping):
            raise UserError(f"{name} must be a section: [{name}] ({source})")
        sections[name] = _section(name, kind, values, f"{source}, [{name}]")
    seed = typed(tree.get("seed", 0), int, "seed", source)
    recipe = Recipe(seed=seed, **sections)
    check(recipe, source)
    return recipe


def load(source: Source, overrides: Changes = ()) -> Recipe:
    """The recipe in a file, of a name or in a dict, with some values changed."""
    tree, name = tree_of(source)
    for plan in PLANS:  # of many runs: this is about one
        tree.pop(plan, None)
    change(tree, overrides)
    how = "set" if isinstance(overrides, Mapping) else "-s"
    return parse(tree, f"{name} with {how}" if overrides else name)


def tree_of(source: Source) -> tuple[dict[str, Any], str]:
    """The values, which are the caller's to change, and what to call them in a sentence."""
    if not isinstance(source, Mapping):
        file = find(source)
        return read_tree(file), file.name
    tree = deepcopy(dict(source))
    if "like" not in tree:
        return tree, "recipe"
    like = typed(tree.pop("like"), str, "like", "recipe")
    return _derived(read_tree(find(like)), tree, "recipe"), "recipe"


def read_tree(file: Path, deriving: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The values in a TOML file.  `like` names another recipe, and the file says what differs.

    Modules and files that it names may lie beside it.
    """
    look_in(file.parent)
    try:
        tree = toml(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file} is not valid TOML: {error}") from error
    if "like" not in tree:
        return tree
    like = typed(tree.pop("like"), str, "like", file.name)
    beside = file.parent / like
    other = beside if os.path.isfile(beside) else find(like)
    deriving = (*deriving, file.resolve())
    if other.resolve() in deriving:
        raise UserError(f"like = {like!r}: that recipe is like this one ({file.name})")
    return _derived(read_tree(other, deriving), tree, file.name)


def toml(text: str) -> dict[str, Any]:
    """The values in a text.  What is no TOML, or more than anybody would write, is a ValueError."""
    too_deep = ValueError(f"brackets or tables are nested more than {DEEPEST} deep")
    try:
        tree = tomllib.loads(text)
    except RecursionError:
        raise too_deep from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python does not read so many digits
        raise ValueError("it has a whole number of thousands of digits") from None
    level: list[Any] = [tree]
    for _ in range(DEEPEST):
        level = [inner for value in level for inner in _inside(value)]
    if level:
        raise too_deep
    return tree


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _derived(tree: dict[str, Any], own: Mapping[str, Any], source: str) -> dict[str, Any]:
    """With values of one's own.  As with -s, a new name leaves the old one's options behind."""
    for section, values in own.items():
        if not isinstance(values, Mapping):
            tree[section] = values
            continue
        if not isinstance(tree.setdefault(section, {}), dict):
            raise UserError(f"{section} must not be a section ({source})")
        for key, value in values.items():
            if f"{section}.{key}" in NAMES:
                switch(tree, f"{section}.{key}", value)
        _merge(tree[section], values)
    return tree


def _merge(tree: dict[str, Any], own: Mapping[str, Any]) -> None:
    for key, value in own.items():
        if isinstance(value, Mapping) and isinstance(tree.get(key), dict):
            _merge(tree[key], value)
        else:
            tree[key] = value


def change(tree: dict[str, Any], overrides: Changes) -> None:
    """Set each key in a tree."""
    given = dotted(overrides) if isinstance(overrides, Mapping) else map(_said, overrides)
    # Names first: an option that is set beside a new name belongs to that.
    for place, value in sorted(given, key=lambda each: each[0] not in NAMES):
        (switch if place in NAMES else _put)(tree, place, value)


def dotted(
    values: Mapping[str, Any], prefix: str = "", whole: Set[str] = frozenset()
) -> Iterator[tuple[str, Any]]:
    """{"ring": {"nodes": 20}} is {"ring.nodes": 20}; a table with a key of `whole` is a value."""
    for key, value in values.items():
        if isinstance(value, Mapping) and not whole & value.keys():
            yield from dotted(value, f"{prefix}{key}.", whole)
        else:
            yield f"{prefix}{key}", value


def _said(override: str) -> tuple[str, Any]:
    """A `section.key=value`.  The value is TOML; anything else is a string."""
    place, equals, text = override.partition("=")
    if not equals or not place.strip():
        raise UserError(f"-s {override}: write it as section.key=value, e.g. -s ring.nodes=20")
    try:
        value = toml(f"value = {text}")["value"]
    except ValueError:
        value = text.strip()
    return place.strip(), value


def shipped() -> dict[str, Path]:
    """The recipes that come with Basil, by name."""
    here = Path(__file__).resolve().parents[1]
    folders = [here / "recipes", here.parents[1] / "recipes"]  # installed; in a checkout
    folder = next((f for f in folders if f.is_dir()), folders[0])
    names = {str(p.relative_to(folder).with_suffix("")): p for p in folder.rglob("*.toml")}
    return dict(sorted(names.items()))


def find(path: str | Path) -> Path:
    """The file itself, or the shipped recipe of that name."""
    file = Path(path)
    if os.path.isfile(file):  # of a name that no file can have it says no: Path raises
        return file
    recipes = shipped()
    if str(path) in recipes:
        return recipes[str(path)]
    near = difflib.get_close_matches(str(path), recipes, n=3, cutoff=0)
    raise UserError(
        f"recipe {str(path)!r:.100}: there is no such file; the nearest names are"
        f" {', '.join(map(repr, near))} (basil list recipes)"
    )


NAMES = {f"{section}.{key}" for section, tables in OPTION_TABLES.items() for key, _ in tables}


def switch(tree: dict[str, Any], place: str, value: Any) -> None:
    """Name another attack, schedule, …; the old one's options are left behind.

    Also those that have the same name in the new one: the target of a backdoor is a class, that of
    a mimic is a node.
    """
    section, _, key = place.partition(".")
    there = tree.get(section, {})
    values = dict(there) if isinstance(there, Mapping) else {}
    old = _options_or_none(section, values)
    _put(tree, place, value)
    new = _options_or_none(section, tree[section])
    if old is None or new is None:  # a name that does not exist: `parse` says where
        return
    if tree[section][key] == values.get(key, getattr(SECTIONS[section](), key)):
        return
    kept = {field.name for field in fields(SECTIONS[section])}
    kept |= options_of(section, values, without=key).keys()
    for option in old:
        if option not in kept:
            tree[section].pop(option, None)


def _options_or_none(section: str, values: Any) -> dict[str, Any] | None:
    try:
        return options_of(section, values)
    except (UserError, AttributeError, TypeError):
        return None


def _put(tree: dict[str, Any], place: str, value: Any) -> None:
    *parents, last = place.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
        if not isinstance(tree, dict):
            raise UserError(f"-s {place}={shown(value)}: {parent} is not a section")
    tree[last] = value


def options_of(section: str, values: Mapping[str, Any], without: str = "") -> dict[str, Any]:
    """All options that this section may hold, given the entries that it names."""
    found: dict[str, Any] = {}
    for key, table in OPTION_TABLES.get(section, []):
        if key == without:
            continue
        default = getattr(SECTIONS[section](), key)
        named = values.get(key, default)
        if named == default == "":  # none is named
            continue
        mine: dict[str, Any] = {}
        for name in names_in(named):
            if table is not ATTACKS:
                options = table.options(name)
            else:
                options = {} if name == NO_ATTACK else attack_options(name, values)
            for option, value in options.items():
                if mine.setdefault(option, value) != value:
                    raise UserError(f"{key}: option {option!r} has two defaults; rename one")
        found.update(mine)
    return found


# Keys that are gone, with the value under which they did nothing: recorded recipes may hold that.
GONE = {("sharing", "compress"): False}


def _section(name: str, kind: type[Any], values: Mapping[str, Any], source: str) -> Any:
    gone = {key for section, key in GONE if section == name and values.get(key) == GONE[name, key]}
    values = {key: value for key, value in values.items() if key not in gone}
    hints = get_type_hints(kind)
    hints.pop("options", None)
    for key, _ in OPTION_TABLES.get(name, []):
        if key in values:
            typed(values[key], hints[key], key, source)
    try:
        options = options_of(name, values)
    except UserError as error:
        raise UserError(f"{error} ({source})") from error
    values = _by_new_names(name, values)
    if clash := sorted(hints.keys() & options.keys()):
        raise UserError(f"option {clash[0]!r} has the name of a key: rename it ({source})")
    known_keys(values, {**hints, **options}, source)
    given = {k: v for k, v in values.items() if k in hints}
    if "events" in given:
        given["events"] = _events(given["events"], source)
        hints.pop("events")
    for key, value in given.items():
        if key in hints:
            given[key] = typed(value, hints[key], key, source)
    if "options" in (f.name for f in fields(kind)):
        given["options"] = {
            key: typed(values.get(key, default), type(default), key, source)
            for key, default in options.items()
        }
    return kind(**given)


def _by_new_names(section: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Options that an entry once had by another name (`renamed`), with a sentence for each."""
    found = dict(values)
    for key, table in OPTION_TABLES.get(section, []):
        named = names_in(values.get(key, getattr(SECTIONS[section](), key)))
        entries = [table[name] for name in named if name not in ("", NO_ATTACK)]
        renamed = {k: v for entry in entries for k, v in getattr(entry, "renamed", {}).items()}
        for old in found.keys() & renamed:
            new = renamed[old]
            if new in found:
                raise UserError(f"{section}.{old} is now {section}.{new}: give only that one")
            warn(f"{section}.{old} is now {section}.{new}", FutureWarning, stacklevel=2)
            found[new] = found.pop(old)
    return found


def _events(rows: Any, source: str) -> tuple[Event, ...]:
    if not isinstance(rows, list | tuple) or not all(isinstance(row, Mapping) for row in rows):
        raise UserError(
            f"events must be tables [[ring.events]] with node, leaves, returns ({source})"
        )
    hints = get_type_hints(Event)
    events = []
    for row in rows:
        known_keys(row, hints, source)
        for key in ("node", "leaves"):
            if key not in row:
                raise UserError(f"events: {key} is missing in {dict(row)} ({source})")
        events.append(
            Event(**{k: typed(v, hints[k], f"events.{k}", source) for k, v in row.items()})
        )
    return tuple(events)
