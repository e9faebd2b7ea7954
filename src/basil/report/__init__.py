"""Runs, compared: a table for the terminal, figures, and one HTML page that holds everything.

`results_table` and `as_text` are light.  What draws is imported on first use, so that a command
that prints a table does not wait for matplotlib.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from basil.report.results_table import as_text, results_table

if TYPE_CHECKING:
    from basil.report.curves import accuracy_figure, success_figure
    from basil.report.heatmap import heatmap_figure
    from basil.report.page import ReportPaths, write_report
    from basil.report.plots import distance_figure, ring_figure, save

__all__ = [
    "ReportPaths",
    "accuracy_figure",
    "as_text",
    "distance_figure",
    "heatmap_figure",
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
    "ring_figure": "basil.report.plots",
    "save": "basil.report.plots",
    "success_figure": "basil.report.curves",
}


def __getattr__(name: str) -> Any:
    if name in _DRAWS:
        return getattr(import_module(_DRAWS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
