"""A sweep's outcome as one tidy table: a row for each run, a column for each key varied."""

import csv
import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from basil.many.cases import Case, CaseOutcome, case_of
from basil.recipe.sweep_plan import Point
from basil.record.callback import flat
from basil.record.disk import replacing, writing

TABLE = "sweep.csv"
PARQUET = "sweep.parquet"
NOT_MEASURED = {"seed", "nodes", "byzantine", "connectivity", "rounds", "classes"}  # said by keys


def sweep_cases(points: Sequence[Point], out: Path) -> list[Case]:
    """A case for each point that is a recipe; points that come to the same are one."""
    found = [case_of(point.recipe, out) for point in points if point.recipe is not None]
    return list({case.folder: case for case in found}.values())


def tidy(
    points: Sequence[Point], outcomes: Sequence[CaseOutcome], out: Path
) -> list[dict[str, Any]]:
    """The rows, in the sweep's order.  A failed run has a row too, with the reason in `error`."""
    ended = {outcome.case.folder: outcome for outcome in outcomes}
    rows = []
    for point in points:
        row: dict[str, Any] = {**point.varied, "seed": point.seed}
        outcome = ended[case_of(point.recipe, out).folder] if point.recipe else None
        summary = outcome.summary if outcome else None
        row["run"] = outcome.case.name if outcome else ""
        row["error"] = (outcome.error if outcome else point.fault) or ""
        measured = flat(summary or {})
        row |= {key: value for key, value in measured.items() if key not in NOT_MEASURED}
        row["model_sha256"] = (summary or {}).get("model_sha256", "")
        rows.append(row)
    return rows


def write_table(rows: Sequence[dict[str, Any]], out: Path) -> list[Path]:
    """CSV, and Parquet where pyarrow is installed."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    written = [out / TABLE]
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        with replacing(out / TABLE, shared=True) as partial:
            partial.write_text(text.getvalue(), encoding="utf-8")
    if find_spec("pyarrow") is not None:
        import pyarrow as pa
        from pyarrow import parquet

        # A key that has words beside numbers among its values is text throughout.
        table = {column: _alike([row.get(column) for row in rows]) for column in columns}
        with writing(out), replacing(out / PARQUET, shared=True) as partial:
            parquet.write_table(pa.table(table), partial)
        written.append(out / PARQUET)
    return written


def _alike(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return (
            [None if value is None else float(value) for value in values]
            if float in kinds
            else values
        )
    if len(kinds) == 1 and kinds <= {str, bool}:
        return values
    return [None if value is None else str(value) for value in values]
