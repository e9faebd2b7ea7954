"""Runs, compared: a table for the terminal, figures, and one HTML page that holds everything.

`results_table` and `as_text` are light.  What draws is imported on first use, so that a command
that prints a table does not wait for matplotlib.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from basil.reporting.results_table import as_text, results_table

if TYPE_CHECKING:
    from basil.reporting.curves import accuracy_figure, metric_figure, success_figure
    from basil.reporting.heatmap import heatmap_figure
    from basil.reporting.page import ReportPaths, write_report
    from basil.reporting.plots import distance_figure, ring_figure, save

__all__ = [
    "ReportPaths",
    "accuracy_figure",
    "as_text",
    "distance_figure",
    "heatmap_figure",
    "metric_figure",
    "results_table",
    "ring_figure",
    "save",
    "success_figure",
    "write_report",
]

_DRAWS = {
    "ReportPaths": "basil.reporting.page",
    "write_report": "basil.reporting.page",
    "accuracy_figure": "basil.reporting.curves",
    "distance_figure": "basil.reporting.plots",
    "heatmap_figure": "basil.reporting.heatmap",
    "metric_figure": "basil.reporting.curves",
    "ring_figure": "basil.reporting.plots",
    "save": "basil.reporting.plots",
    "success_figure": "basil.reporting.curves",
}


def __getattr__(name: str) -> Any:
    if name in _DRAWS:
        return getattr(import_module(_DRAWS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
