"""Runs, compared: a table for the terminal, figures, and one HTML page that holds everything.

`results_table` and `as_text` are light.  What draws is imported on first use, so that a command
that prints a table does not wait for matplotlib.
"""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from basil.report.results_table import as_text, results_table

if TYPE_CHECKING:
    from basil.report.curves import accuracy_figure, metric_figure, success_figure
    from basil.report.heatmap import heatmap_figure
    from basil.report.page import ReportPaths, write_report
    from basil.report.plots import distance_figure, ring_figure, save

__all__ = [
    "ReportPaths",
    "accuracy_figure",
    "as_text",
    "distance_figure",
    "heatmap_figure",
    "metric_figure",
    "report",
    "results_table",
    "ring_figure",
    "save",
    "success_figure",
    "write_report",
]

_DRAWS = {
    "ReportPaths": "basil.report.page",
    "write_report": "basil.report.page",
    "accuracy_figure": "basil.report.curves",
    "distance_figure": "basil.report.plots",
    "heatmap_figure": "basil.report.heatmap",
    "metric_figure": "basil.report.curves",
    "ring_figure": "basil.report.plots",
    "save": "basil.report.plots",
    "success_figure": "basil.report.curves",
}


def __getattr__(name: str) -> Any:
    if name in _DRAWS:
        return getattr(import_module(_DRAWS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def report(
    folder: str | Path,
    *more: str | Path,
    out: str | Path | None = None,
    against: Literal["rounds", "megabytes", "seconds"] = "rounds",
) -> "ReportPaths":
    """Write one page and figures about all runs in these folders, as `basil report` does.

    out: where to write; by default into the first of them.
    against: what curves are drawn over, "rounds", "megabytes" or "seconds" of the virtual clock.

    >>> basil.report("runs/compared").page                           # doctest: +SKIP
    """
    page = import_module("basil.report.page")
    runs = page.runs_below([folder, *more])
    paths: ReportPaths = page.write_report(runs, Path(out or folder), against)
    return paths


class _Callable(ModuleType):
    """`basil.report` is this package, and `basil.report(folder)` what the command does."""

    __call__ = staticmethod(report)


sys.modules[__name__].__class__ = _Callable
