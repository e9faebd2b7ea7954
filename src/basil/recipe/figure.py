"""What the file of a figure may say: a recipe, and beside it which runs make the figure.

The file is a recipe (`basil run paper/fig4` runs it) with a section more:

    [figure]                    title, claim (the paper's; or whose `says` says), note, quantity,
                                metric, against, columns, at (rounds beside the last in its table)
    [figure.quick]              keys of the recipe that make it small: ring.nodes = 20
    [[figure.panel]]            title, metric; set, quick: what its curves have in common
    [[figure.curve]]            id, name; set, quick; panels (letters; default: all)
    [[figure.expect]]           what the paper says, so that it can be checked
    [[figure.number]]           a number of the paper, and the function that computes it

A case is the recipe, changed by the panel's `set` and then by the curve's.  `name` may quote the
recipe: "S = {ring.connectivity}".  A file with `like` has what another figure has, and says what
differs (recipes/rules-epoch.toml).
"""

import json
import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from itertools import chain, product
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from basil.errors import UserError
from basil.recipe.read import PLANS, change, find, parse, read_tree, shipped
from basil.recipe.schema import Recipe
from basil.recipe.values import known_keys, typed
from basil.recipe.write import to_tree

FOLDER = "paper"  # of the shipped recipes
Values = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Panel:
    title: str
    metric: str = ""  # worst or mean, where it is not the figure's
    set: Values = field(default_factory=dict)
    quick: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Curve:
    id: str  # what expectations call it
    name: str = ""  # what the legend calls it; default: the id
    panels: tuple[str, ...] = ()  # letters; default: all
    set: Values = field(default_factory=dict)
    quick: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Expectation:
    """At the end, `curve` is at least, at most: per cent, or points above the curve `than`.

    Of other quantities than accuracy, as they are.
    of = "share": its accuracy as a share of that of `than`.
    of = "reach": how far along the axis `curve` first is as good as `than` ever gets, as a multiple
    of how far `than` is when it gets there.
    of = "swing": how much its accuracy changes from one measurement to the next, on average over
    the second half of its rounds, as a multiple of what that of `than` does.
    """

    curve: str
    panels: tuple[str, ...]
    than: str = ""
    at_least: float | None = None
    at_most: float | None = None
    of: str = "accuracy"
    note: str = ""  # why it may differ, as far as that is known


@dataclass(frozen=True)
class Number:
    """A number of the paper beside `function(**arguments)`, with `over` a ratio of two of them."""

    says: str
    function: str  # of basil.theory, or "calibrate"
    paper: float
    arguments: Values = field(default_factory=dict)
    over: Values = field(default_factory=dict)  # arguments that differ in the denominator
    take: str = ""  # which part of the result
    factor: float = 1.0
    within: float = 0.05  # relative
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure or table of the paper: which runs, how they are drawn, what is expected."""

    name: str
    title: str
    claim: str
    base: Values  # the recipe, as its file has it
    note: str = ""
    metric: str = "worst"  # or "mean", over the benign nodes
    against: str = "rounds"  # or "seconds", "megabytes"
    columns: int = 4
    at: tuple[int, ...] = ()  # rounds that the table has beside the last
    says: str = "The paper"  # whose claim it is
    quantity: str = "accuracy"  # or the name of a metric
    panel: tuple[Panel, ...] = ()
    curve: tuple[Curve, ...] = ()
    expect: tuple[Expectation, ...] = ()
    number: tuple[Number, ...] = ()
    quick: Values = field(default_factory=dict)

    @property
    def panels(self) -> dict[str, Panel]:
        """By letter: a to z, aa to zz."""
        letters = string.ascii_lowercase
        names = chain(letters, map("".join, product(letters, repeat=2)))
        return dict(zip(names, self.panel, strict=False))

    def metric_of(self, panel: str) -> str:
        return self.panels[panel].metric or self.metric


@dataclass(frozen=True)
class Drawn:
    """One curve in one panel: its recipe, for the seed that the recipe names."""

    panel: str
    curve: str
    label: str
    recipe: Recipe


def figures() -> dict[str, Path]:
    """The figures that come with Basil, by name, in the order of the paper."""
    found = {
        name.removeprefix(f"{FOLDER}/"): path
        for name, path in shipped().items()
        if name.startswith(f"{FOLDER}/")
    }
    return dict(sorted(found.items(), key=lambda entry: rank(entry[0])))


def beyond_the_paper() -> dict[str, Path]:
    """Figures that come with Basil and are not the paper's."""
    others = {n: path for n, path in shipped().items() if not n.startswith(f"{FOLDER}/")}
    return {name: path for name, path in others.items() if "figure" in read_tree(path)}


def rank(name: str) -> tuple[bool, int, str]:
    """fig4 before fig10, and both before table3."""
    number = re.fullmatch(r"fig(\d+)", name)
    return number is None, int(number[1]) if number else 0, name


def load_figure(name: str) -> Figure:
    """A figure by name (fig4), or from a file of one's own."""
    file = figures().get(name) or _file(name)
    tree = read_tree(file)
    about = tree.get("figure")
    if not isinstance(about, Mapping):
        raise UserError(f"{file.name} describes no figure: it has no section [figure]")
    parts: dict[str, type[Any]] = {
        "panel": Panel,
        "curve": Curve,
        "expect": Expectation,
        "number": Number,
    }
    source = f"{file.name}, [figure]"
    given = dict(about)
    for key, kind in parts.items():
        rows = given.get(key, [])
        if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
            raise UserError(f"{key} must be tables [[figure.{key}]] ({source})")
        given[key] = tuple(_entry(kind, row, f"{file.name}, [[figure.{key}]]") for row in rows)
    base = {key: value for key, value in tree.items() if key not in PLANS}
    figure = _entry(Figure, given, source, name=file.stem, base=base)
    _check(figure, file.name)
    return figure


def _file(name: str) -> Path:
    try:
        return find(name)
    except UserError:
        known = ", ".join([*figures(), *beyond_the_paper()])
        raise UserError(f"figure {name!r} does not exist; there are {known}") from None


def _entry(kind: type[T], values: Mapping[str, Any], source: str, **known: Any) -> T:
    """A dataclass from the values of a table, each of the type that its field has."""
    hints = {key: hint for key, hint in get_type_hints(kind).items() if key not in known}
    known_keys(values, hints, source)
    for f in fields(kind):  # type: ignore[arg-type]
        required = f.default is MISSING and f.default_factory is MISSING
        if required and f.name in hints and f.name not in values:
            raise UserError(f"{f.name} is missing ({source})")
    given: Values = {}
    for key, value in values.items():
        if hints[key] == Values:
            if not isinstance(value, Mapping):
                raise UserError(f"{key} must be a table, {{ section.key = value }} ({source})")
            given[key] = dict(value)
        elif isinstance(value, tuple):  # entries that were read already
            given[key] = value
        else:
            given[key] = typed(value, hints[key], key, source)
    return kind(**known, **given)


def _check(figure: Figure, source: str) -> None:
    curves = [curve.id for curve in figure.curve]
    for name, value, known in (
        *(("metric", metric, ("worst", "mean")) for metric in _metrics(figure)),
        ("against", figure.against, ("rounds", "seconds", "megabytes")),
        *(("of", e.of, ("accuracy", "share", "reach", "swing")) for e in figure.expect),
        *(("curve", e.curve, curves) for e in figure.expect),
        *(("than", e.than, curves) for e in figure.expect if e.than or e.of != "accuracy"),
        *(("panels", p, figure.panels) for e in figure.expect for p in e.panels),
        *(("panels", p, figure.panels) for c in figure.curve for p in c.panels),
    ):
        if value not in known:
            raise UserError(f"{name} = {value!r}: there are {', '.join(known)} ({source})")
    for expected in figure.expect:
        if expected.of in ("reach", "swing") and figure.quantity != "accuracy":
            raise UserError(f"of = {expected.of!r}: it is for figures of accuracy ({source})")
        if expected.at_least is None and expected.at_most is None:
            raise UserError(f"an expectation needs at_least or at_most ({source})")
        for curve in figure.curve:
            for panel in expected.panels if curve.id in (expected.curve, expected.than) else ():
                if curve.panels and panel not in curve.panels:
                    raise UserError(f"curve {curve.id!r} is not in panel {panel} ({source})")
    if figure.columns < 1:
        raise UserError(f"columns = {figure.columns}: it must be 1 or more ({source})")
    if not figure.number and not (figure.panel and figure.curve):
        raise UserError(f"a figure needs panels and curves, or numbers ({source})")


def _metrics(figure: Figure) -> list[str]:
    return [figure.metric, *(panel.metric for panel in figure.panel if panel.metric)]


def drawn(figure: Figure, quick: bool = False, overrides: Iterable[str] = ()) -> list[Drawn]:
    """Every curve of every panel with its recipe; `overrides` are for all of them."""
    overrides = list(overrides)
    found = []
    for letter, panel in figure.panels.items():
        for curve in figure.curve:
            if curve.panels and letter not in curve.panels:
                continue
            layers = [panel.set, curve.set]
            if quick:
                layers = [figure.quick, panel.set, panel.quick, curve.set, curve.quick]
            tree = json.loads(json.dumps(figure.base))
            for layer in layers:
                change(tree, layer)
            change(tree, overrides)
            recipe = parse(tree, f"{figure.name}, panel {letter}, curve {curve.id}")
            label = _quoting(curve.name or curve.id, to_tree(recipe))
            found.append(Drawn(letter, curve.id, label, recipe))
    return found


def _quoting(name: str, tree: Mapping[str, Any]) -> str:
    def value(place: re.Match[str]) -> str:
        section, _, key = place[1].partition(".")
        return str(tree.get(section, {}).get(key, place[0]))

    return re.sub(r"\{([\w.]+)\}", value, name)
