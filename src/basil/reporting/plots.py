"""How figures look; and two of them: who chose whose model, and how far back it came from.

Nothing here touches pyplot, so drawing leaves no figure open and no setting changed.  Colours are
those of Okabe and Ito, then of Tol, which stay distinct for colour-blind readers; shape or line
style always says the same thing as colour.
"""

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as PlainFigure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from basil.record.disk import replacing
from basil.record.read import OWN, Run
from basil.reporting.run_groups import setting

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#AA4499"
ORANGE, SKY, BLACK = "#E69F00", "#56B4E9", "#222222"
INK, FAINT, GRID = "#333333", "#6B7280", "#E5E7EB"
INDIGO, FOREST, OLIVE, WINE, ROSE, TEAL, GREY = (
    "#332288", "#117733", "#999933", "#882255", "#CC6677", "#44AA99", "#7F7F7F"
)  # fmt: skip
BROWN, VIOLET, LEAF, SAND, PINK = "#661100", "#6A3D9A", "#66A61E", "#C7B35A", "#E78AC3"
COLOURS = (
    *(BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK),
    *(INDIGO, FOREST, OLIVE, WINE, ROSE, TEAL, GREY),
    *(BROWN, VIOLET, LEAF, SAND, PINK),
)

# Any: newer matplotlibs spell the keys out in their types, older ones take strings.
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": "#9CA3AF",
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.titlesize": 10,
    "axes.titlepad": 8,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": "#9CA3AF",
    "ytick.color": "#9CA3AF",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    # Names come from recipes: a "$" in one is a dollar, not the beginning of a formula.
    "text.parse_math": False,
}

# Above this, chords are a grey disc and an SVG of many megabytes: the commonest are kept.
MOST_CHORDS = 3000
CHORD_LEVELS = 6
MOST_LABELS = 40
# The very first turn has nothing to choose from; that alone is not worth a bar.
THINNEST_BAR = 0.005
ROUND_STEPS = [1, 2, 5, 10]


class Figure(PlainFigure):
    """Shows itself in a notebook, though nobody has imported pyplot."""

    def _repr_png_(self) -> bytes:
        return as_png(self)


@mpl.rc_context(STYLE)
def ring_figure(run: Run) -> Figure:
    """The ring, clockwise from the top, and whose models the benign nodes chose."""
    order, byzantine = run.order, run.byzantine
    angle = np.pi / 2 - 2 * np.pi * np.arange(len(order)) / max(1, len(order))
    points = _on_circle(angle)
    lies = np.array([node in byzantine for node in order], dtype=bool)
    pairs, counts, kept = _chosen_pairs(run)

    figure = Figure(figsize=(5.2, 6.0))
    figure.set_layout_engine("constrained")
    axes = figure.add_subplot()
    axes.set_aspect("equal")
    axes.set_axis_off()
    reach = 1.2 if len(order) <= MOST_LABELS else 1.06
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)

    axes.plot(*_on_circle(np.linspace(0, 2 * np.pi, 181)).T, color=GRID, linewidth=1, zorder=1)
    lied = lies[pairs[:, 0]]
    threshold = _drawn_from(counts[~lied])
    # A lie that was believed is what the picture is for: none is left out.
    shown = lied | (counts >= threshold)
    _chords(axes, angle, pairs[shown], counts[shown], lied[shown])

    size = float(np.clip(2400 / max(1, len(order)), 6, 110))
    for mask, colour, marker, scale in ((~lies, BLUE, "o", 1.0), (lies, VERMILLION, "D", 0.85)):
        axes.scatter(
            points[mask, 0],
            points[mask, 1],
            s=size * scale,
            c=colour,
            marker=marker,
            edgecolors="white",
            linewidths=0.8 if size > 20 else 0.3,
            zorder=4,
        )
    if len(order) <= MOST_LABELS:
        for node, (x, y), is_byzantine in zip(order, points * 1.11, lies, strict=True):
            colour = VERMILLION if is_byzantine else FAINT
            axes.text(x, y, str(node), ha="center", va="center", fontsize=8, color=colour)
    if not len(pairs):
        axes.text(0, 0, "no benign node chose\nanother's model", ha="center", color=FAINT)

    choices, believed = int(counts.sum()), int(counts[lied].sum())
    _ring_legend(figure, int(lies.sum()), len(order), choices, believed)
    notes = ["turns run clockwise from the top"]
    if kept:
        notes.append(f"kept its own or the initial model: {_share(kept, kept + choices)}")
    if not shown.all():
        notes.append(f"blue lines: chosen at least {threshold} times")
    figure.suptitle("\n".join(notes), fontsize=8, color=FAINT, linespacing=1.5)
    return figure


@mpl.rc_context(STYLE)
def distance_figure(run: Run) -> Figure:
    """How many places back on the ring the chosen model came from: share of benign turns."""
    pairs, counts, kept = _chosen_pairs(run)
    size = {node: len(ring) for ring in run.rings for node in ring}
    back = (pairs[:, 1] - pairs[:, 0]) % np.array([size[run.order[i]] for i in pairs[:, 1]] or [1])
    farthest = max(int(back.max(initial=1)), int(setting(run, "connectivity") or 1))
    turns = max(1, kept + int(counts.sum()))
    own = kept / turns if kept / turns >= THINNEST_BAR else 0.0
    share = np.bincount(back, weights=counts, minlength=farthest + 1) / turns

    figure = Figure(figsize=(4.2, 2.7))
    figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.06)
    axes = figure.add_subplot()
    places = np.arange(1, farthest + 1)
    axes.bar(places, share[1:], width=0.72, color=BLUE)
    if own:
        axes.bar([0], [own], width=0.72, color="#9CA3AF", hatch="///", edgecolor="white")
    step = next((step for step in (1, 2, 5, 10, 20, 50) if farthest <= 12 * step), farthest)
    ticks = [0] * bool(own) + sorted({1, *range(step, farthest + 1, step)})
    axes.set_xticks(ticks, ["own" if tick == 0 else str(tick) for tick in ticks])
    axes.set_xlim(-0.6 if own else 0.4, farthest + 0.6)
    axes.set_ylim(0, 1.08 * float(max(share.max(), own)) or 1.0)
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=ROUND_STEPS))
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("places back on the ring")
    axes.set_ylabel("share of benign turns")
    return figure


@mpl.rc_context(STYLE)
def as_png(figure: Figure) -> bytes:
    """At 150 dpi; the same bytes for the same runs."""
    file = BytesIO()
    FigureCanvasAgg(figure).print_figure(file, dpi=150, format="png", metadata={"Software": None})
    return file.getvalue()


def save(figure: Figure, path: Path) -> tuple[Path, Path]:
    """Writes path.png (150 dpi) and path.svg, the same bytes for the same runs; returns both."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not with_suffix: a name like "S=0.5" would lose its end.
    png, svg = path.with_name(f"{path.name}.png"), path.with_name(f"{path.name}.svg")
    with replacing(png, shared=True) as partial:
        partial.write_bytes(as_png(figure))
    layout = figure.get_layout_engine()
    with mpl.rc_context(STYLE | {"svg.hashsalt": "basil"}), replacing(svg, shared=True) as partial:
        figure.set_layout_engine(None)  # all is in its place: to find places takes as long again
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        FigureCanvasSVG(figure).print_figure(partial, format="svg", metadata=nothing)
    figure.set_layout_engine(layout)
    return png, svg


def _chosen_pairs(run: Run) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """(place of the chosen, place of the chooser) on the ring, how often, and turns without one."""
    selections = run.selections.of_benign()
    place = {node: where for where, node in enumerate(run.order)}
    taken = (selections.chosen != OWN) & (selections.chosen != selections.node)
    pairs = np.array(
        [
            (place[int(chosen)], place[int(node)])
            for chosen, node in zip(selections.chosen[taken], selections.node[taken], strict=True)
        ],
        dtype=np.int64,
    ).reshape(-1, 2)
    unique, counts = np.unique(pairs, axis=0, return_counts=True)
    return unique, counts.astype(np.int64), int((~taken).sum())


def _on_circle(angle: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.column_stack([np.cos(angle), np.sin(angle)])


def _drawn_from(counts: NDArray[np.int64]) -> int:
    """The count from which on a chord is drawn.

    A fixed number of chords would cut through pairs that are equally frequent, and show a lopsided
    ring where there is none.
    """
    for threshold in np.unique(counts):
        if np.count_nonzero(counts >= threshold) <= MOST_CHORDS:
            return int(threshold)
    return int(counts.max(initial=1))


def _chords(
    axes: Axes,
    angle: NDArray[np.float64],
    pairs: NDArray[np.int64],
    counts: NDArray[np.int64],
    lied: NDArray[np.bool_],
) -> None:
    """Curves from the chosen to the chooser, in a few steps of width: one path for each step.

    One path for each curve would make the SVG ten times as large.
    """
    if not len(pairs):
        return
    nodes = len(angle)
    ahead = (pairs[:, 1] - pairs[:, 0]) % nodes
    # Half of the shorter way round, with its sign; near pairs stay at the rim, far ones dip.
    half = np.where(ahead <= nodes / 2, ahead, ahead - nodes) * np.pi / nodes
    depth = 0.2 + 0.6 * np.abs(half) / max(np.abs(half).max(), 1e-9)
    bend = _on_circle(angle[pairs[:, 0]] - half) * (1 - depth)[:, None]
    curves = np.stack([_on_circle(angle[pairs[:, 0]]), bend, _on_circle(angle[pairs[:, 1]])], 1)
    level = np.clip(np.ceil(CHORD_LEVELS * counts / counts.max()), 1, CHORD_LEVELS)
    # As wide as among 20 nodes, the chords of 400 would be one blot.
    width = float(np.clip(60 / nodes, 0.35, 1.0))
    for is_byzantine, colour, zorder in ((False, BLUE, 2), (True, VERMILLION, 3)):
        for step in range(1, CHORD_LEVELS + 1):
            chosen = curves[(level == step) & (lied == is_byzantine)]
            if not len(chosen):
                continue
            codes = np.tile([Outline.MOVETO, Outline.CURVE3, Outline.CURVE3], len(chosen))
            part = step / CHORD_LEVELS
            patch = PathPatch(
                Outline(chosen.reshape(-1, 2), codes),
                fill=False,
                edgecolor=colour,
                zorder=zorder,
                linewidth=width * ((0.9 if is_byzantine else 0.3) + 2.7 * part),
                alpha=0.6 + 0.3 * part if is_byzantine else 0.10 + 0.45 * part,
            )
            axes.add_patch(patch)


def _ring_legend(figure: Figure, byzantine: int, nodes: int, choices: int, lies: int) -> None:
    edge: dict[str, Any] = {"linestyle": "", "markeredgecolor": "white", "markersize": 8}

    def dot(marker: Any, colour: str, label: str) -> Line2D:
        return Line2D([], [], marker=marker, color=colour, label=label, **edge)

    def line(colour: str, label: str) -> Line2D:
        return Line2D([], [], color=colour, linewidth=2, alpha=0.75, label=label)

    handles = [
        dot("o", BLUE, f"benign node ({nodes - byzantine})"),
        dot("D", VERMILLION, f"Byzantine node ({byzantine})"),
        line(BLUE, f"chose a benign model ({_share(choices - lies, choices)})"),
        line(VERMILLION, f"chose a Byzantine model ({_share(lies, choices)})"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, columnspacing=2.5)


def _share(part: int, whole: int) -> str:
    if not whole:
        return "–"
    percent = 100 * part / whole
    return "< 0.1 %" if 0 < percent < 0.05 else f"{percent:.1f} %"
