"""Go on with a run that was stopped."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from basil.errors import UserError
from basil.experiment.experiment import Experiment
from basil.experiment.machine import Machine, Own
from basil.recipe import parse
from basil.record import run_folder
from basil.record.callback import Callback
from basil.record.read import read_run
from basil.record.recorder import Progress


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
    recipe = parse(past.recipe, f"{folder}/{run_folder.RECIPE}")
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
