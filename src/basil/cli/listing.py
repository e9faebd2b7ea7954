"""basil list: what a recipe can name, and what is known of each."""

import argparse
import inspect
import json
from pathlib import Path
from typing import Any

from basil.cli import KINDS
from basil.cli.say import say
from basil.errors import UserError
from basil.recipe import NO_ATTACK, find, shipped
from basil.recipe.schema import OPTION_TABLES
from basil.table import Table
from basil.text import aligned, paragraphs, width

_BY_GROUP = {table.group: table for tables in OPTION_TABLES.values() for _, table in tables}
TABLES: dict[str, Table[Any]] = {kind: _BY_GROUP[kind] for kind in KINDS if kind in _BY_GROUP}
NOBODY = "Nobody lies: all nodes are benign."


def show(args: argparse.Namespace) -> int:
    """basil list schemes|attacks|… [NAME]"""
    if args.name is not None:
        return _one(args.what, args.name, args.json)
    if args.what == "recipes":
        rows = {name: _headline(path) for name, path in shipped().items()}
    else:
        table = TABLES[args.what]
        rows = {name: _summary(table, name) for name in table}
        if args.what == "attacks":
            rows = {NO_ATTACK: NOBODY, **rows}
    if args.json:
        print(json.dumps(rows))
    else:
        print("\n".join(aligned(list(rows.items()), width())))
    return 0


def _one(kind: str, name: str, as_json: bool) -> int:
    """All that is said of one: its docstring, or a recipe's head, and its options."""
    options: dict[str, Any] = {}
    if kind == "recipes":
        text = _head(find(name))
    elif kind == "attacks" and name == NO_ATTACK:
        text = NOBODY
    else:
        text = inspect.getdoc(TABLES[kind][name]) or ""
        options = TABLES[kind].options(name)
    if as_json:
        print(json.dumps({"name": name, "text": text, "options": options}))
        return 0
    print(f"{name}\n\n{paragraphs(text, width())}")
    if options:
        print("\noptions, with their defaults:")
        print("\n".join(f"  {key} = {json.dumps(value)}" for key, value in options.items()))
    elif kind != "recipes":
        say("\nIt has no options.")
    return 0


def _summary(table: Table[Any], name: str) -> str:
    """Also of a package's entry that cannot be loaded: the others are to be seen all the same."""
    try:
        return table.summary(name)
    except UserError as error:
        return f"cannot be used: {error}"


def _head(path: Path) -> str:
    """The comment that a recipe begins with."""
    lines = path.read_text(encoding="utf-8").splitlines()
    end = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[:end])


def _headline(path: Path) -> str:
    """Its first paragraph: what the recipe is about."""
    return " ".join(_head(path).split("\n\n")[0].split("\n"))
