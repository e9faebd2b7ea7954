"""Which runs a figure needs, and what they came to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from basil.data import present
from basil.data.sources import SOURCES
from basil.many.cases import Case, case_of
from basil.many.numbers import number_verdicts
from basil.recipe.figure import Drawn, Figure, drawn
from basil.record.provenance import surroundings
from basil.record.read import read_run
from basil.record.run_folder import FACTS
from basil.reporting.reproduction import Reproduction
from basil.reporting.verdict import Traced, verdicts

RUNS = "runs"  # below the folder of all figures: what two of them need is run once


@dataclass(frozen=True)
class FigureRuns:
    """A figure with a case for each seed of each of its curves."""

    figure: Figure
    quick: bool
    seeds: int
    curves: tuple[tuple[Drawn, tuple[Case, ...]], ...]

    @property
    def cases(self) -> list[Case]:
        """Each once, though several panels may show it."""
        return list({case.folder: case for _, each in self.curves for case in each}.values())


def plan_figure(
    figure: Figure, seeds: int, out: Path, quick: bool = False, overrides: Sequence[str] = ()
) -> FigureRuns:
    """The cases of a figure, with `seeds` seeds from the recipe's own on."""

    def cases(curve: Drawn) -> tuple[Case, ...]:
        recipes = [replace(curve.recipe, seed=curve.recipe.seed + i) for i in range(seeds)]
        return tuple(case_of(recipe, out / RUNS) for recipe in recipes)

    found = drawn(figure, quick, overrides)
    return FigureRuns(figure, quick, seeds, tuple((curve, cases(curve)) for curve in found))


def lacking_data(plan: FigureRuns) -> str:
    """How to get the data that the figure needs and that is not on this machine; "" if it is."""
    needed = dict.fromkeys(case.recipe.data.dataset for case in plan.cases)
    lacking = [name for name in needed if name in SOURCES and not present(name)]
    if not lacking:
        return ""
    how = " && ".join(f"basil data get {name}" for name in lacking)
    return (
        f"{plan.figure.name} needs the data set {' and '.join(lacking)}, which is not on this"
        f" machine: fetch it with `{how}`, or set BASIL_DATA to the folder that has it"
    )


def reproduction(plan: FigureRuns, command: str) -> Reproduction:
    """What the runs that are there came to, finished or not."""
    traced = {}
    for curve, cases in plan.curves:
        runs = tuple(read_run(case.folder) for case in cases if (case.folder / FACTS).exists())
        rounds = curve.recipe.scheme.rounds
        traced[curve.panel, curve.curve] = Traced(
            curve.panel, curve.curve, curve.label, runs, rounds, plan.seeds
        )
    return Reproduction(
        figure=plan.figure,
        command=command,
        quick=plan.quick,
        data=" and ".join(dict.fromkeys(c.recipe.data.dataset for c, _ in plan.curves)),
        setting=_setting(plan),
        traced=tuple(traced.values()),
        verdicts=(*verdicts(plan.figure, traced), *number_verdicts(plan.figure)),
        here=surroundings(torch.device("cpu")),
    )


def _setting(plan: FigureRuns) -> str:
    """10–40 nodes, 100 rounds"""
    recipes = [curve.recipe for curve, _ in plan.curves]
    if not recipes:
        return ""
    nodes = _range([recipe.ring.nodes for recipe in recipes])
    return f"{nodes} nodes, {_range([r.scheme.rounds for r in recipes])} rounds"


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low}–{high}"
