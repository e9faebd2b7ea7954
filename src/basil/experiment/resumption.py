"""Go on with a run that was stopped."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from basil.errors import UserError
from basil.experiment.experiment import Experiment
from basil.experiment.machine import Machine, Own
from basil.foreign import look_in
from basil.recipe import Recipe, code_of, parse
from basil.record import run_folder
from basil.record.callback import Callback
from basil.record.read import Run, read_run
from basil.record.recorder import Progress


def recipe_of(run: Run) -> Recipe:
    """The recipe of a run; what it names is looked for where it was found then, too."""
    for place in run.facts.get("folders", ()):
        look_in(place)
    return parse(run.recipe, f"{run.folder}/{run_folder.RECIPE}")


def others_code(recipe: Recipe, run: Run) -> str:
    """The entries, not Basil's own, whose source is not the one with which the run was made."""
    now, then = code_of(recipe), run.facts.get("extensions", {})
    return ", ".join(entry for entry in now if then.get(entry) != now[entry])


def take_up(
    folder: Path,
    own: Own | None = None,
    machine: Machine | None = None,
    beside: Experiment | None = None,
) -> Experiment:
    """The experiment of an interrupted run, ready to be resumed."""
    past = read_run(folder)
    if past.summary is not None:
        raise UserError(f"{folder} is a finished run: there is nothing to resume")
    if not (folder / run_folder.CHECKPOINT).exists():
        raise UserError(f"{folder} was stopped before its first checkpoint: run it anew")
    recipe = recipe_of(past)
    if changed := others_code(recipe, past):
        raise UserError(f"{folder} was begun with another source of {changed}: run it anew")
    experiment = Experiment(recipe, own, machine, beside)
    for what in ("layout", "initial_sha256"):
        if experiment.facts()[what] != past.facts.get(what):
            raise UserError(f"{folder} was run with another model: resume it with the same one")
    return experiment


def resume(
    folder: Path,
    own: Own | None = None,
    machine: Machine | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Take up an interrupted run where its last checkpoint left it."""
    experiment = take_up(folder, own, machine)
    return experiment.run(folder, progress, stop, resume=True, callbacks=callbacks)
