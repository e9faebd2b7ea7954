"""The figures of a plan: failure against connectivity, time against the number of groups."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.ticker import FuncFormatter, MaxNLocator

from basil.reporting.plots import BLUE, FAINT, GREEN, STYLE, VERMILLION, Figure, save
from basil.theory import smallest_connectivity
from basil.theory.planner import Plan, failure_curve

LEAST = 1e-12  # what the axis of probabilities goes down to
WIDE = 30  # times that differ by more are drawn on a logarithmic scale


@mpl.rc_context(STYLE)
def failure_figure(plan: Plan) -> Figure:
    """Prop. 2's bound and the exact probability against S, on a logarithmic scale."""
    asked, chosen = plan.setting, plan.ring.connectivity
    last = chosen
    if asked.byzantine <= asked.nodes - 2:
        last = max(smallest_connectivity(asked.nodes, asked.byzantine, LEAST, exact=False), chosen)
    points = failure_curve(asked, last)
    figure, axes = _figure()
    for place, label, colour, marker, dash in (
        (1, "union bound (Prop. 2)", VERMILLION, "s", "--"),
        (2, "exact", BLUE, "o", "-"),
    ):
        drawn = [(point[0], point[place]) for point in points if point[place] > 0]
        look = {"color": colour, "marker": marker, "linestyle": dash, "markersize": 3.5}
        across, up = [S for S, _ in drawn], [chance for _, chance in drawn]
        axes.plot(across, up, label=label, **look)  # type: ignore[arg-type]
    axes.axvline(chosen, color=FAINT, linewidth=0.9, linestyle=":")
    axes.set_yscale("log")
    axes.set_ylim(LEAST / 10, 3)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_title(f"N = {asked.nodes:,}, b = {asked.byzantine:,}; dotted: S = {chosen}")
    axes.set_xlabel("connectivity S")
    axes.set_ylabel("probability of failure")
    axes.legend()
    return figure


@mpl.rc_context(STYLE)
def groups_figure(plan: Plan) -> Figure:
    """Training time against the number of groups, each with the S that it needs."""
    figure, axes = _figure()
    groups = [choice.groups for choice in plan.choices]
    late = [choice.turn for choice in plan.choices]
    early = [choice.arrival for choice in plan.choices]
    axes.plot(groups, late, color=BLUE, marker="o", label="scored when the turn comes")
    axes.plot(groups, early, color=GREEN, marker="^", linestyle="--", label="scored on arrival")
    axes.set_xscale("log")
    if max(late) > WIDE * min(early):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    few = groups if len(groups) <= 8 else groups[:: -(-len(groups) // 8)]
    axes.set_xticks(few, [f"{count:,}" for count in few])
    axes.minorticks_off()
    axes.set_title(f"N = {plan.setting.nodes:,}, {plan.setting.rounds:,} rounds")
    axes.set_xlabel("groups G (1: Basil, more: Basil+)")
    axes.set_ylabel("seconds")
    axes.legend()
    return figure


def write_figures(plan: Plan, folder: Path) -> list[Path]:
    """failure.png, groups.png and the same as SVG."""
    paths = [*save(failure_figure(plan), folder / "failure")]
    if plan.choices:
        paths += save(groups_figure(plan), folder / "groups")
    return paths


def _figure() -> tuple[Figure, mpl.axes.Axes]:
    figure = Figure(figsize=(5.4, 3.4))
    figure.set_layout_engine("constrained")
    return figure, figure.add_subplot()
