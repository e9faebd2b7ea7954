"""How well the owners of shared samples are hidden, as a picture (§IV-C)."""

import json
from collections.abc import Iterable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from basil.errors import UserError
from basil.record.read import Run
from basil.reporting.plots import BLUE, INK, ORANGE, STYLE, VERMILLION, Figure

MOST_PANELS = 6
COUNTS: dict[str, tuple[str, str, Any]] = {
    "paper": ("as the paper counts", BLUE, "-"),
    "dummies_known": ("for one who knows dummies", ORANGE, (0, (5, 1.5))),
    "liars_collude": ("if all Byzantine nodes collude", VERMILLION, (0, (1.2, 1.2))),
}


@mpl.rc_context(STYLE)
def anonymity_figure(runs: Iterable[Run]) -> Figure:
    """Which part of the shared samples has at most k possible owners; a panel for each sharing."""
    shared: dict[str, tuple[str, dict[str, dict[str, int]]]] = {}
    for run in runs:
        owners = ((run.summary or {}).get("sharing") or {}).get("possible_owners")
        if owners:
            shared.setdefault(json.dumps(owners), (_name(run), owners))
    if not shared:
        raise UserError("no run has shared data: nothing to plot")
    panels = list(shared.values())[:MOST_PANELS]
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(0.6 + 3.6 * columns, 0.6 + 2.9 * rows))
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08)
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.remove()
    for axes, (name, owners) in zip(grid, panels, strict=False):
        axes.set_title(name)
        most = max(int(k) for count in owners.values() for k in count)
        for kind, (label, colour, dashes) in COUNTS.items():
            x, y = _at_most(owners.get(kind, {}), most)
            axes.step(x, y, where="post", label=label, color=colour, linestyle=dashes)
        axes.set_ylim(0, 1.03)
        axes.set_xlabel("possible owners, at most")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
    figure.supylabel("shared samples", fontsize=9, color=INK)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns + 1)
    return figure


def _at_most(count: dict[str, int], most: int) -> tuple[list[int], list[float]]:
    """For k = 0, 1, …: the part of the samples with k possible owners or fewer."""
    sizes = np.zeros(most + 1)
    for k, samples in count.items():
        sizes[int(k)] += samples
    whole = max(1.0, float(sizes.sum()))
    return list(range(most + 1)), (sizes.cumsum() / whole).tolist()


def _name(run: Run) -> str:
    part = run.recipe.get("sharing") or {}
    words = [
        f"{letter} = {part[key]}"
        for letter, key in (("α", "alpha"), ("H", "batches"), ("G", "groups"))
        if key in part
    ]
    return ", ".join(words) + (", opening round" if part.get("opening") else "")
