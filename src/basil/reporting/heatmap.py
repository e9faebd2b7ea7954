"""Every scheme against every attack in one picture: the worst benign accuracy as a coloured grid.

A page of panels shows how each scheme learns; with many schemes and attacks the first question is
where each of them breaks.  Light is good and dark is bad in every cell, and the number is there for
who wants to know how bad.
"""

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from numpy.typing import NDArray

from basil.errors import UserError
from basil.record.read import Run
from basil.reporting.plots import FAINT, INK, STYLE, Figure
from basil.reporting.results_table import MISSING, mean_and_spread, measured
from basil.reporting.run_groups import cases, group, setting

FEWEST = 2  # schemes, and attacks: below that a row of the table says it as well
COLOURS = "viridis"  # perceptually uniform, and read alike by colour-blind readers
PER_CENT = Normalize(0, 100)
# Of black and white, black has the better contrast on whatever is lighter than this (WCAG 2).
MIDDLE_LUMINANCE = 0.179
CELL_WIDTH, CELL_HEIGHT, NARROWEST = 0.42, 0.38, 4.2  # inches


@dataclass(frozen=True)
class Entry:
    """What the seeds of one scheme under one attack reached, in per cent."""

    mean: float
    spread: float | None  # sample standard deviation; None for a single seed
    seeds: int


@dataclass(frozen=True)
class Grid:
    """Scheme × attack → entry; what has not been run, or not to its end, is not there."""

    schemes: tuple[str, ...]
    attacks: tuple[str, ...]
    entries: dict[tuple[str, str], Entry]

    @property
    def seeds(self) -> str:
        """How many seeds a cell is the mean of: 3, or 1–3 where they differ."""
        counts = sorted({entry.seeds for entry in self.entries.values()})
        return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"


def grid(runs: Iterable[Run], quantity: str = "accuracy") -> Grid:
    """What each case reached on its worst benign node; schemes and attacks in the runs' order.

    Runs that are unfinished are left out: their accuracy belongs to another round.
    """
    finished = [run for run in runs if run.finished]
    place = {run.folder: number for number, run in enumerate(finished)}
    entries: dict[tuple[str, str], Entry] = {}
    schemes: dict[str, int] = {}
    attacks: dict[str, int] = {}
    for case in cases(finished):
        found = [100 * value for run in case.runs if (value := _worst(run, quantity)) is not None]
        if not found:
            continue
        entries[case.scheme, case.attack] = Entry(*mean_and_spread(found), len(found))
        first = min(place[run.folder] for run in case.runs)
        schemes[case.scheme] = min(first, schemes.get(case.scheme, first))
        attacks[case.attack] = min(first, attacks.get(case.attack, first))
    return Grid(
        tuple(sorted(schemes, key=schemes.__getitem__)),
        tuple(sorted(attacks, key=attacks.__getitem__)),
        entries,
    )


@mpl.rc_context(STYLE)
def heatmap_figure(runs: Iterable[Run]) -> Figure:
    """Worst benign accuracy, a row for each scheme and a column for each attack, mean over seeds.

    Where the success of a backdoor was measured it stands in columns of its own, on the right.
    """
    runs = list(runs)
    accuracy, success = grid(runs), grid(runs, "attack_success")
    if len(accuracy.schemes) < FEWEST or len(accuracy.attacks) < FEWEST:
        raise UserError(
            f"a heat-map needs finished runs of {FEWEST} schemes and {FEWEST} attacks with an "
            f"accuracy; here are {len(accuracy.schemes)} and {len(accuracy.attacks)}"
        )
    rows, widths = len(accuracy.schemes), [len(accuracy.attacks)]
    if success.attacks:
        widths.append(len(success.attacks))
    longest = max(map(len, accuracy.schemes))
    width = max(1.3 + 0.07 * longest + CELL_WIDTH * (sum(widths) + 0.5), NARROWEST)
    figure = Figure(figsize=(width, 2.0 + CELL_HEIGHT * rows))
    figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.06, wspace=0.02)
    panels = figure.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0]
    _cells(panels[0], accuracy, accuracy.schemes)
    panels[0].set_yticks(np.arange(rows) + 0.5, accuracy.schemes)
    figure.suptitle(textwrap.fill(_says(accuracy), int(13 * width)), fontsize=9)
    if success.attacks:
        _cells(panels[1], success, accuracy.schemes, good=False)
        panels[1].set_yticks([])
        panels[1].set_title("attack\nsuccess %", fontsize=8)
    _colour_bar(figure, list(panels), runs, bool(success.attacks))
    return figure


def _says(cells: Grid) -> str:
    if cells.seeds == "1":
        return "worst benign accuracy % (one seed)"
    return f"worst benign accuracy %: mean ± standard deviation over seeds (n = {cells.seeds})"


def _worst(run: Run, quantity: str) -> float | None:
    value = measured(run, quantity, "worst")
    return value if value is not None and np.isfinite(value) else None


def _cells(axes: Axes, cells: Grid, schemes: tuple[str, ...], *, good: bool = True) -> None:
    """One panel; `good` says whether much of what is shown is good, and so light."""
    means = np.full((len(schemes), len(cells.attacks)), np.nan)
    for row, scheme in enumerate(schemes):
        for column, attack in enumerate(cells.attacks):
            if entry := cells.entries.get((scheme, attack)):
                means[row, column] = entry.mean
            _write(axes, row, column, entry, good)
    mesh = axes.pcolormesh(
        np.ma.masked_invalid(means), cmap=_map(good), norm=PER_CENT, edgecolors="white", linewidth=1
    )
    mesh.set_clip_on(False)  # the outer cells keep their whole border
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks(
        np.arange(len(cells.attacks)) + 0.5,
        [textwrap.fill(attack, 18) for attack in cells.attacks],
        rotation=45,
        ha="right",
        rotation_mode="anchor",
    )


def _write(axes: Axes, row: int, column: int, entry: Entry | None, good: bool) -> None:
    """The mean, and beneath it, smaller, the deviation; a dash where there is nothing."""
    across, middle = column + 0.5, row + 0.5
    if entry is None:
        axes.text(across, middle, MISSING, ha="center", va="center", color=FAINT)
        return
    colour = ink_on(_map(good)(PER_CENT(entry.mean)))
    beneath = entry.spread is not None
    height = middle - 0.14 if beneath else middle
    axes.text(
        across, height, f"{entry.mean:.1f}", ha="center", va="center", color=colour, fontsize=8
    )
    if beneath:
        said = f"±{entry.spread:.1f}"
        axes.text(across, middle + 0.22, said, ha="center", va="center", color=colour, fontsize=6)


def ink_on(colour: tuple[float, float, float, float]) -> str:
    """Black or white, whichever can be read on this colour: by its relative luminance."""
    rgb: NDArray[np.float64] = np.asarray(colour[:3], dtype=np.float64)
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return "black" if linear @ (0.2126, 0.7152, 0.0722) > MIDDLE_LUMINANCE else "white"


def _map(good: bool) -> Colormap:
    return mpl.colormaps[COLOURS if good else f"{COLOURS}_r"]


def _colour_bar(figure: Figure, panels: list[Axes], runs: list[Run], success: bool) -> None:
    bar = figure.colorbar(
        ScalarMappable(PER_CENT, _map(True)), ax=panels, fraction=0.04, pad=0.01, aspect=28
    )
    bar.outline.set_visible(False)
    # The map of success is the same one, reversed.
    bar.set_label("accuracy %\n100 − success %" if success else "accuracy %")
    ticks = {float(level): f"{level}" for level in range(0, 101, 20)}
    for chance in _chances(runs):
        ticks = {level: name for level, name in ticks.items() if abs(level - chance) > 4}
        ticks[chance] = "chance"
        bar.ax.axhline(chance, color="white", linewidth=1.6)
        bar.ax.axhline(chance, color=INK, linewidth=0.9, linestyle=":")
    bar.set_ticks(list(ticks), labels=list(ticks.values()))


def _chances(runs: list[Run]) -> list[float]:
    """What guessing would reach, in per cent, where the runs say how many classes there are."""
    said = group(runs, lambda run: setting(run, "classes"))
    return sorted(100 / count for count in said if isinstance(count, int) and count > 1)
