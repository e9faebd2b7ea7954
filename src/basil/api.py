"""Basil from Python: what the commands do, and your own network, loss and data on the ring.

A recipe is a file, the name of a shipped one, or a dict with what such a file holds, which may
begin with "like": "demo".  `set` changes some of its values: {"scheme.rounds": 20}.

What runs many recipes does so in processes, which import the script that calls it once more: there
the call stands below `if __name__ == "__main__":`.
"""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from basil.data import Dataset, from_samples
from basil.data.convert import Collate, is_pair
from basil.experiment import Custom, Machine, Simulation, run_in_foreground, set_up
from basil.experiment import resume as resume_run
from basil.learning.metrics import Measure
from basil.learning.models import Loss
from basil.many.cases import Case, CaseOutcome, ExecutionSettings, check, comparison, run_cases
from basil.many.sweep import sweep_cases, tidy, write_table
from basil.recipe import Recipe, Source, load, to_tree
from basil.recipe.sweep_plan import load_sweep
from basil.record.callback import Callback
from basil.record.run_folder import clear
from basil.result import Result, load_models
from basil.theory import PartTimes, Plan, Setting, make_plan

if TYPE_CHECKING:
    from basil.reporting import ReportPaths

Changes = Mapping[str, Any]

__all__ = ["Result", "compare", "load_models", "plan", "report", "resume", "run", "sweep"]


def run(
    recipe: Source | Recipe,
    *,
    out: str | Path,
    set: Changes | None = None,
    model: nn.Module | None = None,
    loss: Loss | None = None,
    dataset: Dataset | tuple[Any, Any] | None = None,
    collate: Collate | None = None,
    metrics: Sequence[Measure] = (),
    device: str = "auto",
    deterministic: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
    overwrite: bool = False,
) -> Result:
    """Run a recipe (a file, a shipped name, or its content as a dict) into the folder `out`.

    set: values to change in the recipe, {"scheme.rounds": 20}.
    model: any network; its present weights are x⁰.  What requires no gradient does not travel;
    BatchNorm's running statistics do.  Dropout draws from the node's own stream.
    loss: from outputs and targets to one number for each sample (reduction="none").
    dataset: a `basil.Dataset` of numpy arrays, or (train, test) as `basil.from_samples` takes them;
    collate: the same as there.
    metrics: what else to measure on the test set, from outputs and targets to a number, or to one
    for each sample; higher is better unless a function has `better = "lower"`.
    deterministic: on a GPU, the same bits again at the price of some speed (a CPU with one thread
    always gives them).
    callbacks: hear of the run while it goes on, see `basil.record.callback.Callback`.
    progress: show a bar, on a terminal or in a notebook.
    overwrite: a run that is in `out` already is removed first.

    Ctrl-C leaves a checkpoint before it is raised as KeyboardInterrupt; `resume` goes on.

    >>> result = basil.run("demo", out="runs/mine", model=MyNet())       # doctest: +SKIP
    """
    chosen = _recipe(recipe, set)
    machine = Machine(device, deterministic)
    setup = set_up(chosen, Custom(model, loss, _own(dataset, collate), tuple(metrics)), machine)
    if setup.symmetry_warning:
        warnings.warn(setup.symmetry_warning, stacklevel=2)
    folder = Path(out)
    if overwrite:
        clear(folder)
    begin = partial(Simulation(setup).run, folder)
    return Result(folder, run_in_foreground(begin, folder, callbacks, progress))


def resume(
    folder: str | Path,
    *,
    model: nn.Module | None = None,
    loss: Loss | None = None,
    dataset: Dataset | tuple[Any, Any] | None = None,
    collate: Collate | None = None,
    metrics: Sequence[Measure] = (),
    device: str = "auto",
    deterministic: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
) -> Result:
    """Go on with an interrupted run; bring the same model, loss, data and metrics as then."""
    custom = Custom(model, loss, _own(dataset, collate), tuple(metrics))
    machine = Machine(device, deterministic)
    go_on = partial(resume_run, Path(folder), custom, machine)
    return Result(Path(folder), run_in_foreground(go_on, Path(folder), callbacks, progress))


def compare(
    recipe: Source | Recipe,
    *,
    out: str | Path,
    schemes: Sequence[str] = (),
    attacks: Sequence[str] = (),
    seeds: Sequence[int] = (),
    set: Changes | None = None,
    jobs: int = 0,
    device: str = "auto",
    deterministic: bool = False,
) -> list[Result]:
    """Run schemes × attacks × seeds in processes, a folder below `out` for each.

    What is not given is as the recipe's [compare] says.  A network, loss or data set of one's own
    is named in the recipe, "net.py:Net".  Called again, it goes on: what is finished is kept.
    jobs: processes; 0: one a core, on a GPU what suits it.

    >>> basil.compare("demo", out="runs/demo", set={"scheme.rounds": 20})     # doctest: +SKIP
    """
    todo = comparison(_recipe(recipe, set), Path(out), schemes, attacks, seeds)
    outcomes = _carry_out(todo, ExecutionSettings(Machine(device, deterministic), jobs))
    check(outcomes)
    return [Result(outcome.case.folder, outcome.summary or {}) for outcome in outcomes]


def sweep(
    recipe: Source,
    *,
    out: str | Path,
    grid: Mapping[str, Sequence[Any]] | None = None,
    seeds: Sequence[int] | None = None,
    set: Changes | None = None,
    jobs: int = 0,
    device: str = "auto",
    deterministic: bool = False,
    ray: bool = False,
    address: str | None = None,
) -> list[dict[str, Any]]:
    """Run all combinations that `grid` and `seeds`, or the recipe's [sweep], ask for.

    Returns the rows of the table, which is written to `out` as well: a run that failed has the
    reason in "error".  Called again, it goes on: what is finished is kept.
    ray: on Ray instead of in processes, at `address` or on this machine.

    >>> rates = {"learning.rate": [0.01, 0.03, 0.1]}
    >>> basil.sweep("demo", grid=rates, seeds=range(3), out="runs/rates")     # doctest: +SKIP
    """
    plan = {"grid": grid, "seeds": None if seeds is None else list(seeds)}
    if given := {key: value for key, value in plan.items() if value is not None}:
        tree: dict[str, Any]
        tree = dict(recipe) if isinstance(recipe, Mapping) else {"like": str(recipe)}
        recipe = {**tree, "sweep": {**tree.get("sweep", {}), **given}}
    points = load_sweep(recipe, set or {})
    machine = Machine(device, deterministic)
    where = ExecutionSettings(machine, jobs, ray=ray or address is not None, address=address)
    rows = tidy(points, _carry_out(sweep_cases(points, Path(out)), where), Path(out))
    write_table(rows, Path(out))
    return rows


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
    from basil.reporting.page import runs_below, write_report  # matplotlib takes a second to import

    return write_report(runs_below([folder, *more]), Path(out or folder), against)


def plan(
    recipe: Source | Recipe | None = None, *, set: Changes | None = None, **asked: Any
) -> Plan:
    """How safe a ring is, and what it costs: see `basil.theory.Setting` for what can be asked.

    A recipe answers what is not asked: its ring, network, rounds and times.

    >>> basil.plan(nodes=100, byzantine=33, failure=1e-3).ring.connectivity
    10
    """
    known = {} if recipe is None else _asked(_recipe(recipe, set))
    if {"failure", "worst_case"} & asked.keys():  # S is what is looked for
        known.pop("connectivity", None)
    return make_plan(Setting(**{**known, **asked}))


def _asked(recipe: Recipe) -> dict[str, Any]:
    setup = set_up(recipe)
    times, steps = setup.timing, setup.node_data.steps_in_a_turn()
    return {
        "nodes": recipe.ring.nodes,
        "byzantine": recipe.ring.byzantine,
        "connectivity": recipe.connectivity,
        "groups": recipe.groups if recipe.groups > 1 else None,
        "dropouts": recipe.reach - recipe.connectivity,
        "parameters": setup.compute.layout.size,
        "megabits_per_second": times.megabits,
        "rounds": recipe.scheme.rounds,
        "ring_rounds": recipe.laps,
        "times": PartTimes(times.forward, steps * times.step, times.distance, times.average),
    }


def _carry_out(todo: Sequence[Case], where: ExecutionSettings) -> list[CaseOutcome]:
    """Run all; what became of each, in their order."""
    ended = {outcome.case.folder: outcome for outcome in run_cases(todo, where)}
    return [ended[case.folder] for case in todo]


def _own(dataset: Any, collate: Collate | None) -> Any:
    """A data set of one's own; what it is otherwise is for its checks to say."""
    return from_samples(*dataset, collate=collate) if is_pair(dataset) else dataset


def _recipe(recipe: Source | Recipe, changes: Changes | None = None) -> Recipe:
    if not isinstance(recipe, Recipe):
        return load(recipe, changes or {})
    return load(to_tree(recipe), changes) if changes else recipe
