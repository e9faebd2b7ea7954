"""The results of runs as a table, for page and terminal: a row for each case, the best marked."""

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from basil.record.read import Run, metrics_of
from basil.reporting.run_groups import RunGroup, cases, group
from basil.text import as_text as as_text  # what prints a table imports both
from basil.text import duration

MISSING = "–"
HUGE = 1e7  # from here on, a loss that has run away: nobody reads its digits
# How many columns, from the left, are names and not numbers.
NAMES = 3


@dataclass(frozen=True)
class Column:
    """A measured value: where it stands, how it is written, and whether more of it is better."""

    title: str
    value: Callable[[Run], float | None]
    digits: int = 0
    scale: float = 1.0
    more_is_better: bool = False
    is_time: bool = False


@dataclass(frozen=True)
class Cell:
    """What is shown, and the number behind it if it may compete for best in its column."""

    text: str
    rank: float | None = None
    best: bool = False


@dataclass(frozen=True)
class Row:
    attack: str
    cells: tuple[Cell, ...]


def measured(run: Run, *path: str) -> float | None:
    """A number of the summary, or, while there is none, of the last line of the metrics."""
    value: Any = run.summary
    if value is None:
        value = run.metrics[-1] if run.metrics else {}
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else None


COLUMNS = (
    Column(
        "worst acc. %", lambda run: measured(run, "accuracy", "worst"), 1, 100, more_is_better=True
    ),
    Column(
        "mean acc. %", lambda run: measured(run, "accuracy", "mean"), 1, 100, more_is_better=True
    ),
    Column("mean loss", lambda run: measured(run, "loss", "mean"), 3),
    Column("chose Byzantine %", lambda run: measured(run, "selection", "byzantine"), 1, 100),
    Column("messages", lambda run: measured(run, "messages", "count")),
    Column("MB sent", lambda run: measured(run, "messages", "bytes"), 1, 1e-6),
    Column("virtual time", lambda run: measured(run, "virtual_seconds"), is_time=True),
    Column("real time", lambda run: measured(run, "seconds"), is_time=True),
)
# Only where somebody has measured it.
SUCCESS = (
    Column("attack succ. %", lambda run: measured(run, "attack_success", "worst"), 1, 100),
    Column("mean succ. %", lambda run: measured(run, "attack_success", "mean"), 1, 100),
)


def columns(runs: Iterable[Run]) -> tuple[Column, ...]:
    """What there is to show of these runs."""
    runs = list(runs)
    attacked = any(SUCCESS[0].value(run) is not None for run in runs)
    more = SUCCESS if attacked else ()
    asked = [
        _of_metric(name, of, better)
        for name, better in metrics_of(runs).items()
        for of in ("worst", "mean")
    ]
    return (*COLUMNS[:2], *asked, *more, *COLUMNS[2:])


def _of_metric(name: str, of: str, better: str) -> Column:
    more = better == "higher"
    return Column(f"{of} {name}", lambda run: measured(run, name, of), 3, more_is_better=more)


def results_table(runs: Iterable[Run], *, each_seed: bool = False) -> list[list[str]]:
    """Header and rows; runs that differ in the seed alone share a row, unless `each_seed`."""
    runs = list(runs)
    rows = [[cell.text for cell in row.cells] for row in result_rows(runs, each_seed=each_seed)]
    return [header(runs), *rows]


def header(runs: Iterable[Run]) -> list[str]:
    return ["attack", "scheme", "seed", *(column.title for column in columns(runs))]


def result_rows(runs: Iterable[Run], *, each_seed: bool = False) -> list[Row]:
    """The table's body, with the best value of every column marked within each attack."""
    runs = list(runs)
    found, shown = cases(runs), columns(runs)
    if each_seed:
        found = [replace(case, runs=(run,)) for case in found for run in case.runs]
    rows = [_row(case, shown) for case in found]
    return [row for rivals in group(rows, lambda row: row.attack).values() for row in _best(rivals)]


def mean_and_spread(values: list[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n - 1); of one value there is no deviation."""
    if not all(map(math.isfinite, values)):
        return math.nan, None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def _row(case: RunGroup, shown: tuple[Column, ...]) -> Row:
    names = [Cell(case.attack), Cell(_label(case)), Cell(_seeds(case.seeds))]
    return Row(case.attack, (*names, *(_cell(case, column) for column in shown)))


def _label(case: RunGroup) -> str:
    if case.finished:
        return case.label
    reached = [run.metrics[-1]["round"] if run.metrics else 0 for run in case.runs]
    return f"{case.scheme} (unfinished, round {min(reached)})"


def _seeds(seeds: list[Any]) -> str:
    """0, 1, 2 -> 0–2 (n = 3); anything less regular is listed."""
    count = f" (n = {len(seeds)})" if len(seeds) > 1 else ""
    whole = sorted(seed for seed in seeds if isinstance(seed, int))
    if len(whole) == len(seeds) > 2 and all(b - a == 1 for a, b in pairwise(whole)):
        return f"{whole[0]}–{whole[-1]}{count}"
    return ", ".join(MISSING if seed is None else str(seed) for seed in seeds) + count


def _cell(case: RunGroup, column: Column) -> Cell:
    values = [value for run in case.runs if (value := column.value(run)) is not None]
    if not values:
        return Cell(MISSING)
    mean, spread = mean_and_spread([value * column.scale for value in values])
    if math.isnan(mean):
        return Cell("not finite")
    if column.is_time:
        text = duration(mean, spread or 0.0)
    else:
        text = f"{mean:,.{column.digits}f}" if abs(mean) < HUGE else f"{mean:.2e}"
        if spread is not None and spread > 0:
            text += f" ± {spread:,.{column.digits}f}"
    if len(values) < len(case.runs):  # the row's n is not this cell's
        text += f" (n = {len(values)})"
    # A run that has not finished looks cheap, and its accuracy belongs to another round.
    return Cell(text, (mean if column.more_is_better else -mean) if case.finished else None)


def _best(rows: list[Row]) -> list[Row]:
    marked = [list(row.cells) for row in rows]
    for place in range(NAMES, len(rows[0].cells)):
        column = [row.cells[place] for row in rows]
        ranks = [cell.rank for cell in column if cell.rank is not None]
        # What is written alike is alike: where all rivals agree there is nothing to point at.
        top = {cell.text for cell in column if ranks and cell.rank == max(ranks)}
        if len({cell.text for cell in column if cell.rank is not None}) < 2:
            continue
        for cells in marked:
            cell = cells[place]
            cells[place] = replace(cell, best=cell.rank is not None and cell.text in top)
    return [Row(row.attack, tuple(cells)) for row, cells in zip(rows, marked, strict=True)]
