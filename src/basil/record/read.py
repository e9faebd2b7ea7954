"""Run folders, read back.  A run may still be going or may have been interrupted, so everything but
`run.json` and `recipe.toml` can be short or absent; what is there and cannot be read is an error.
"""

import io
import json
import tomllib
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from basil.errors import UserError

# The file that makes a folder a run: it is written before the first round.
MARK = "run.json"
SELECTION_COLUMNS = "round,node,chosen,byzantine"
OWN = -1

T = TypeVar("T")


@dataclass(frozen=True)
class Selections:
    """Row i: in round[i], node[i] chose the model of chosen[i] (OWN: its own, or the initial)."""

    round: NDArray[np.int64]
    node: NDArray[np.int64]
    chosen: NDArray[np.int64]
    byzantine: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.round)

    def of_benign(self) -> "Selections":
        """Without the choices of Byzantine nodes, which say nothing about a scheme."""
        keep = self.byzantine == 0
        return Selections(
            self.round[keep], self.node[keep], self.chosen[keep], self.byzantine[keep]
        )


@dataclass(frozen=True)
class Run:
    """One run folder; `facts` is run.json, `summary` is None until the run has finished."""

    folder: Path
    recipe_text: str
    facts: dict[str, Any]
    metrics: list[dict[str, Any]]
    selections: Selections
    summary: dict[str, Any] | None

    @property
    def recipe(self) -> dict[str, Any]:
        return tomllib.loads(self.recipe_text)

    @property
    def order(self) -> list[int]:
        """Node ids in ring order."""
        return list(self.facts["order"])

    @property
    def rings(self) -> list[list[int]]:
        """The groups, neighbours in that order; without any, one ring of all."""
        return list(self.facts.get("groups") or [self.order])

    @property
    def byzantine(self) -> frozenset[int]:
        return frozenset(self.facts["byzantine"])

    @property
    def finished(self) -> bool:
        return self.summary is not None


def metrics_of(runs: Iterable[Run]) -> dict[str, str]:
    """The metrics that runs were asked for: name -> "higher" or "lower", whichever is better."""
    return {name: better for run in runs for name, better in run.facts.get("metrics", {}).items()}


def find_runs(folders: Iterable[Path]) -> list[Run]:
    """The runs that the folders are or contain, at any depth, each once, sorted by path."""
    found: dict[Path, Path] = {}
    for folder in folders:
        inside = sorted(mark.parent for mark in Path(folder).rglob(MARK))
        if not inside:
            raise UserError(
                f"{folder} holds no run: neither it nor a folder below it contains a {MARK}"
            )
        for run in inside:
            found.setdefault(run.resolve(), run)
    return [read_run(found[place]) for place in sorted(found)]


def read_run(folder: Path) -> Run:
    """One run; a file that is damaged or disagrees with another is named in the error."""
    folder = Path(folder)
    if not (folder / MARK).is_file():
        raise UserError(f"{folder} holds no run: it has no {MARK}")
    facts = read_facts(folder)
    nodes = frozenset(facts["order"])
    return Run(
        folder=folder,
        recipe_text=read_recipe(folder),
        facts=facts,
        metrics=_parsed(folder / "metrics.jsonl", _metrics, absent=[]),
        selections=_parsed(
            folder / "selections.csv", lambda text: _selections(text, nodes), absent=no_selections()
        ),
        summary=read_summary(folder) if (folder / "summary.json").is_file() else None,
    )


def read_facts(folder: Path) -> dict[str, Any]:
    """What was known before the first round: who made the run, and who takes part in it."""
    return _parsed(folder / MARK, _facts)


def read_recipe(folder: Path) -> str:
    """The text of the recipe, which is TOML."""
    return _parsed(folder / "recipe.toml", _recipe)


def read_summary(folder: Path) -> dict[str, Any]:
    """The outcome of a run that has finished."""
    return _parsed(folder / "summary.json", _object)


def _parsed(path: Path, parse: Callable[[str], T], absent: T | None = None) -> T:
    if absent is not None and not path.exists():
        return absent
    try:
        return parse(path.read_text(encoding="utf-8"))
    # JSON, TOML and Unicode errors are all ValueErrors.
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as a part of a run: {error}") from error


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object was expected, not {text.strip()[:40]!r}")
    return value


def _facts(text: str) -> dict[str, Any]:
    facts = _object(text)
    for key in ("order", "byzantine"):
        ids = facts.get(key)
        if not isinstance(ids, list) or not all(type(node) is int for node in ids):
            raise ValueError(f"{key!r} should be a list of node ids")
    if len(set(facts["order"])) < len(facts["order"]):
        raise ValueError("'order' names a node twice")
    return facts


def _recipe(text: str) -> str:
    tomllib.loads(text)
    return text


def _lines(text: str, parse: Callable[[str], T], first: int = 1) -> list[T]:
    """Every line, parsed.  A last one that has no line end and does not parse was cut off when the
    run was interrupted: it is left out.  (What does parse is whole: an object ends in a brace, a
    selection in a flag of one digit.)"""
    parsed = []
    for number, line in enumerate(io.StringIO(text), start=first):
        try:
            parsed.append(parse(line.rstrip("\r\n")))
        except ValueError as error:
            if not line.endswith("\n"):  # only the last can lack it
                break
            raise ValueError(f"line {number}: {error}") from error
    return parsed


def _metrics(text: str) -> list[dict[str, Any]]:
    return _lines(text, measurement)


def measurement(line: str) -> dict[str, Any]:
    """A line of metrics.jsonl."""
    entry = _object(line)
    if type(entry.get("round")) is not int:
        raise ValueError("'round' should be a whole number")
    return entry


def _selections(text: str, nodes: frozenset[int]) -> Selections:
    header, end, body = text.partition("\n")
    if header.rstrip("\r") != SELECTION_COLUMNS:
        if not end and SELECTION_COLUMNS.startswith(header):
            return no_selections()
        raise ValueError(f"line 1: the header should be {SELECTION_COLUMNS}")
    rows = _lines(body, lambda line: selection(line, nodes), first=2)
    return _table(rows)


def selection(line: str, nodes: Container[int]) -> tuple[int, int, int, int]:
    """A line of selections.csv: round, node, chosen, byzantine."""
    cells = line.split(",")
    if len(cells) != 4 or cells[3] not in ("0", "1"):
        raise ValueError(f"{line!r} is not {SELECTION_COLUMNS}")
    turn, node, byzantine = int(cells[0]), int(cells[1]), int(cells[3])
    chosen = int(cells[2]) if cells[2] else OWN
    if node not in nodes or (chosen != OWN and chosen not in nodes):
        raise ValueError(f"{line!r} names a node that is not in the ring's order")
    return turn, node, chosen, byzantine


def no_selections() -> Selections:
    return _table([])


def _table(rows: list[tuple[int, int, int, int]]) -> Selections:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return Selections(*columns)
