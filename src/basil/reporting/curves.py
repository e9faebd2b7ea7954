"""Accuracy over rounds, or over what they cost: panels for settings, lines for schemes."""

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from basil.errors import UserError
from basil.record.read import Run, metrics_of
from basil.reporting.plots import COLOURS, FAINT, INK, ROUND_STEPS, STYLE, Figure
from basil.reporting.run_groups import RunGroup, cases, group, scheme_name, setting
from basil.reporting.verdict import SHARES

# With 14 colours, 280 lines before a combination of colour, marker and dash returns.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (9, 2)))
CHANCE: dict[str, Any] = {"color": FAINT, "linewidth": 0.9, "linestyle": ":"}
PANELS_IN_ROW = 4
MARKS_ON_LINE = 8
ASTRAY = 10  # times where a curve began: such a value would leave nothing to see of the others
MOST_SHARED = 7  # labels in one legend for all panels
# A scheme looks the same in every figure: its place here is that of its colour, marker and dash.
LOOKS = (
    *("basil", "r_plain", "ubar", "g_plain", "basil_published", "basil+", "r_plain+"),
    *("bridge", "bridge_median", "clipped_gossip", "nna", "balance", "local", "centralised"),
    *("cs+", "gts", "ios", "rpel", "sketchguard"),
)
# What curves are drawn against: the key in metrics.jsonl, its unit, the axis' name.
AXES = {
    "rounds": ("round", 1.0, "round"),
    "megabytes": ("bytes", 1e-6, "MB sent, all nodes together"),
    "seconds": ("virtual_seconds", 1.0, "virtual seconds"),
}


@mpl.rc_context(STYLE)
def accuracy_figure(runs: Iterable[Run], metric: str = "worst", against: str = "rounds") -> Figure:
    """Test accuracy over rounds, a panel for each attack and a line for each scheme (Fig. 4).

    `against` is one of AXES: a round of one scheme may cost ten times a round of another.

    Runs that differ in the seed alone make one line: their mean, in a band of one standard
    deviation.  Where no run has an accuracy (regression), the loss is drawn.
    """
    runs = list(runs)
    quantity = quantity_of(runs, metric)
    drawn = [case for case in cases(runs) if _has(case, quantity, metric)]
    if not drawn:
        raise UserError(f"no run has measured its {metric} accuracy or loss yet: nothing to plot")
    return _curves(drawn, quantity, metric, _accuracy_of(metric, quantity), against)


@mpl.rc_context(STYLE)
def metric_figure(runs: Iterable[Run], name: str, against: str = "rounds") -> Figure:
    """Any other quantity of metrics.jsonl over rounds, on the benign node where it is worst."""
    runs = list(runs)
    drawn = [case for case in cases(runs) if _has(case, name, "worst")]
    if not drawn:
        there = ", ".join(("accuracy", "loss", *metrics_of(runs)))
        raise UserError(f"no run has measured {name!r}; what can be asked for: {there}")
    return _curves(drawn, name, "worst", _accuracy_of("worst", name), against)


@mpl.rc_context(STYLE)
def success_figure(runs: Iterable[Run], against: str = "rounds") -> Figure:
    """The success of backdoors over rounds, on the benign node where it is highest."""
    drawn = [case for case in cases(runs) if _has(case, "attack_success", "worst")]
    if not drawn:
        raise UserError("no run has measured the success of an attack: nothing to plot")
    says = "attack success (worst benign node)"
    return _curves(drawn, "attack_success", "worst", says, against)


@mpl.rc_context(STYLE)
def panels_figure(
    drawn: list[RunGroup],
    metrics: Mapping[str, str],
    against: str,
    columns: int,
    quantity: str = "accuracy",
) -> Figure:
    """A figure as it is described: each case in the panel and with the label that it has.

    metrics: worst or mean, for each panel.  Panels that show many different things have a legend
    and colours of their own.
    """
    shown = [case for case in drawn if _has(case, quantity, metrics[case.attack])]
    if not shown:
        raise UserError(f"no run has measured its {quantity} yet: nothing to plot")
    labels = list(dict.fromkeys(case.label for case in shown))
    apart = len(labels) > MOST_SHARED
    one = set(metrics.values())
    says = _accuracy_of(one.pop(), quantity) if len(one) == 1 else f"test {quantity} (benign nodes)"
    return _curves(shown, quantity, metrics, says, against, columns, labels, apart)


def quantity_of(runs: Iterable[Run], metric: str = "worst") -> str:
    """What `accuracy_figure` draws of these runs: accuracy, or loss where nobody has one."""
    return "accuracy" if any(_series(run, "accuracy", metric) for run in runs) else "loss"


def _accuracy_of(metric: str, quantity: str = "accuracy") -> str:
    whose = "worst benign node" if metric == "worst" else f"{metric} of benign nodes"
    return f"test {quantity} ({whose})"


def _curves(
    drawn: list[RunGroup],
    quantity: str,
    metric: str | Mapping[str, str],  # for all panels, or for each
    says: str,
    against: str,
    columns: int = PANELS_IN_ROW,
    labels: list[str] | None = None,
    apart: bool = False,
) -> Figure:
    panels = group(drawn, lambda case: case.attack)
    styles = _looks(drawn, labels or _labels(drawn))
    columns = min(len(panels), columns)
    rows = -(-len(panels) // columns)
    width = 5.4 if columns == 1 else 0.6 + 2.55 * columns
    figure = Figure(figsize=(width, 0.55 + (3.2 if columns == 1 else 2.75) * rows))
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08, wspace=0.03)
    grid = figure.subplots(rows, columns, sharey=True, sharex=rows > 1, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.remove()
    chance = False
    for place, (axes, (attack, members)) in enumerate(zip(grid, panels.items(), strict=False)):
        axes.set_title(textwrap.fill(attack, 30))
        if apart:
            styles = _looks(members, list(dict.fromkeys(case.label for case in members)))
            axes.legend(handles=[_handle(*style) for style in styles.items()], fontsize=7)
        which = metric if isinstance(metric, str) else metric[attack]
        for case in members:
            _curve(axes, case, quantity, which, against, styles)
        if quantity == "accuracy":
            chance |= _chance(axes, members)
        if quantity in SHARES:
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
        axes.margins(x=0.02)
        whole = against == "rounds"
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=whole, steps=ROUND_STEPS))
        # With a full row below, only the lowest panel of a column names the axis.
        if place + columns >= len(panels):
            axes.set_xlabel(AXES[against][2])
            axes.tick_params(labelbottom=True)
    if quantity in SHARES:
        grid[0].set_ylim(bottom=0)  # of all panels, now that each has found what it needs above
    elif (start := _start(grid)) and grid[0].get_ylim()[1] > ASTRAY * start:
        grid[0].set_ylim(*_around(grid, start))
    figure.supylabel(says, fontsize=9, color=INK)
    handles = [] if apart else [_handle(label, place) for label, place in styles.items()]
    if chance:
        handles.append(Line2D([], [], label="chance", **CHANCE))
    widest = max((len(str(handle.get_label())) for handle in handles), default=0)
    across = max(1, min(len(handles), int(width / (0.7 + 0.075 * widest))))
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=across, handlelength=3.2)
    return figure


def _start(grid: Iterable[Axes]) -> float:
    """The largest value that a curve begins with; 0 if there are none."""
    firsts = [float(np.ravel(line.get_ydata())[0]) for axes in grid for line in axes.lines]
    return max((first for first in firsts if np.isfinite(first)), default=0.0)


def _around(grid: Iterable[Axes], start: float) -> tuple[float, float]:
    """Limits within which training is seen; what went astray leaves through the top."""
    values = np.concatenate([np.ravel(line.get_ydata()) for axes in grid for line in axes.lines])
    low, high = np.nanmin(values), 1.1 * start
    return float(low - 0.05 * (high - low)), high


def _has(case: RunGroup, quantity: str, metric: str) -> bool:
    return any(_series(run, quantity, metric) for run in case.runs)


def _series(run: Run, quantity: str, metric: str) -> dict[int, float]:
    found = {}
    for entry in run.metrics:
        value = (entry.get(quantity) or {}).get(metric)
        if value is not None:
            found[entry["round"]] = float(value)
    return found


def _labels(found: list[RunGroup]) -> list[str]:
    """Basil first, then by name."""
    labels = sorted({case.label for case in found})
    return sorted(labels, key=lambda label: not label.startswith("Basil"))


def _looks(drawn: list[RunGroup], labels: list[str]) -> dict[str, int]:
    """The place of each label's look.  A scheme's first line has the scheme's own, whatever else
    is drawn; its variants, and schemes that are not Basil's, have what is left.
    """
    scheme = {case.label: scheme_name(case.runs[0]) for case in drawn}
    first = {scheme[label]: label for label in reversed(labels)}
    looks = {label: LOOKS.index(name) for name, label in first.items() if name in LOOKS}
    free = iter(sorted(set(range(len(labels) + len(LOOKS))) - set(looks.values())))
    return {label: looks[label] if label in looks else next(free) for label in labels}


def _look(place: int) -> dict[str, Any]:
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": DASHES[place % len(DASHES)],
        "linewidth": 1.6,
        "markersize": 5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }


def _handle(label: str, place: int) -> Line2D:
    return Line2D([], [], label=label, **_look(place))


def _curve(
    axes: Axes, case: RunGroup, quantity: str, metric: str, against: str, styles: dict[str, int]
) -> None:
    place, order = styles[case.label], list(styles).index(case.label) / len(styles)
    measured = [run for run in case.runs if _series(run, quantity, metric)]
    series = [_series(run, quantity, metric) for run in measured]
    # A mean over fewer seeds than before would make a jump that no run made.
    rounds = sorted(set.intersection(*(set(each) for each in series)))
    values = np.array([[each[r] for r in rounds] for each in series])
    values[~np.isfinite(values)] = np.nan
    mean = values.mean(axis=0)
    across = _costs(measured, against, rounds)
    if len(series) > 1:
        spread = values.std(axis=0, ddof=1)
        colour = COLOURS[place % len(COLOURS)]
        axes.fill_between(
            across, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0
        )
    # Markers of different lines are set off from each other, so that none hides another.
    every = max(1, len(rounds) // MARKS_ON_LINE)
    # Basil, the first, lies on top.
    axes.plot(across, mean, markevery=(int(order * every), every), zorder=3 - order, **_look(place))


def _costs(runs: list[Run], against: str, rounds: list[int]) -> list[float]:
    """What it had cost, on average over the seeds, to get to the end of each of these rounds."""
    key, unit, _ = AXES[against]
    found = []
    for run in runs:
        spent = {entry["round"]: unit * entry[key] for entry in run.metrics if key in entry}
        if not spent.keys() >= set(rounds):
            raise UserError(f"{run.folder} does not say how many {against} its rounds took")
        found.append([spent[r] for r in rounds])
    return [float(x) for x in np.mean(found, axis=0)]


def _chance(axes: Axes, members: list[RunGroup]) -> bool:
    """What guessing would reach, where the runs say how many classes there are."""
    said = {setting(run, "classes") for case in members for run in case.runs}
    classes = {count for count in said if isinstance(count, int) and count > 1}
    for count in classes:
        axes.axhline(1 / count, zorder=1, **CHANCE)
    return bool(classes)
