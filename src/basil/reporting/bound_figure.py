"""The figure of a bound: what Byzantine nodes can cost, what they reach, and what is known."""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.ticker import FuncFormatter, MaxNLocator

from basil.reporting.plots import BLUE, FAINT, GREEN, STYLE, VERMILLION, Figure, save
from basil.theory.worst_case import Row


@mpl.rc_context(STYLE)
def bound_figure(
    rows: Sequence[Row], lower: Sequence[float], alone: float, server: float, title: str
) -> Figure:
    """Error against b on a logarithmic scale; the breakdown point is where the axis ends."""
    figure = Figure(figsize=(5.4, 3.4))
    figure.set_layout_engine("constrained")
    axes = figure.add_subplot()
    number = [row.byzantine for row in rows]
    for label, values, colour, marker, dash in (
        ("bound", [row.bound for row in rows], VERMILLION, "s", "--"),
        ("measured, worst Byzantine nodes", [row.measured for row in rows], BLUE, "o", "-"),
        ("lower bound, any algorithm", list(lower), GREEN, "^", ":"),
    ):
        drawn = [(b, v) for b, v in zip(number, values, strict=True) if 0 < v < math.inf]
        look = {"color": colour, "marker": marker, "linestyle": dash, "markersize": 3.5}
        axes.plot([b for b, _ in drawn], [v for _, v in drawn], label=label, **look)  # type: ignore[arg-type]
    if alone:
        axes.axhline(alone, color=FAINT, linewidth=0.9, linestyle="-.", label="training alone")
    if server < number[-1]:
        axes.axvline(server, color=FAINT, linewidth=0.9, linestyle=":", label="1/(2 + B²) of N")
    axes.axvspan(number[-1], number[-1] + 0.5, color=FAINT, alpha=0.25, linewidth=0)
    axes.set_xlim(-0.5, number[-1] + 0.5)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_title(title)
    axes.set_xlabel("Byzantine nodes b (grey: breakdown)")
    axes.set_ylabel("error ‖x − x*‖, root mean square")
    axes.legend()
    return figure


def write_figure(
    rows: Sequence[Row],
    lower: Sequence[float],
    alone: float,
    server: float,
    title: str,
    folder: Path,
) -> list[Path]:
    """bound.png and bound.svg."""
    return [*save(bound_figure(rows, lower, alone, server, title), folder / "bound")]
