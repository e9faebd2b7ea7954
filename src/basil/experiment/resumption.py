"""Go on with a run that was stopped."""

from pathlib import Path
from typing import Any

from torch import nn

from basil import data
from basil.errors import UserError
from basil.experiment.build import set_up
from basil.experiment.machine import Custom, Machine, build_network
from basil.experiment.options import options_of
from basil.experiment.output import facts_of
from basil.experiment.setup import Setup
from basil.experiment.simulation import NO_HOOKS, Simulation
from basil.foreign import look_in
from basil.recipe import Recipe, code_of, parse
from basil.record import run_folder
from basil.record.read import Run, read_run
from basil.record.recorder import Hooks


def recipe_of(run: Run) -> Recipe:
    """The recipe of a run; what it names is looked for where it was found then, too."""
    for place in run.facts.get("folders", ()):
        look_in(place)
    return parse(run.recipe, f"{run.folder}/{run_folder.RECIPE}")


def network_of(run: Run) -> nn.Module:
    """The network of a run, as it began."""
    recipe = recipe_of(run)
    options = options_of(recipe.data, data.DATASETS, "dataset")
    dataset = data.load(recipe.data.dataset, recipe.seed, **options)
    return build_network(recipe, dataset, Custom())


def others_code(recipe: Recipe, run: Run) -> str:
    """The entries, not Basil's own, whose source is not the one with which the run was made."""
    now, then = code_of(recipe), run.facts.get("extensions", {})
    return ", ".join(entry for entry in now if then.get(entry) != now[entry])


def take_up(
    folder: Path,
    custom: Custom | None = None,
    machine: Machine | None = None,
    reuse: Setup | None = None,
) -> Setup:
    """The setup of an interrupted run, ready to be resumed."""
    past = read_run(folder)
    if past.summary is not None:
        raise UserError(f"{folder} is a finished run: there is nothing to resume")
    if not (folder / run_folder.CHECKPOINT).exists():
        raise UserError(f"{folder} was stopped before its first checkpoint: run it anew")
    recipe = recipe_of(past)
    if changed := others_code(recipe, past):
        raise UserError(f"{folder} was begun with another source of {changed}: run it anew")
    setup = set_up(recipe, custom, machine, reuse)
    facts = facts_of(setup)
    for what in ("layout", "initial_sha256"):
        if facts[what] != past.facts.get(what):
            raise UserError(f"{folder} was run with another model: resume it with the same one")
    if facts.get("data") != past.facts.get("data"):
        raise UserError(f"{folder} was run with other data: resume it with the same")
    if facts.get("metrics") != past.facts.get("metrics"):
        raise UserError(f"{folder} was run with other metrics: resume it with the same")
    return setup


def resume(
    folder: Path,
    custom: Custom | None = None,
    machine: Machine | None = None,
    hooks: Hooks = NO_HOOKS,
) -> dict[str, Any]:
    """Take up an interrupted run where its last checkpoint left it."""
    read_run(folder)  # or a folder that is none would be made
    with run_folder.held(folder):  # a run that goes on is said to, whatever it has left so far
        return Simulation(take_up(folder, custom, machine)).run_held(folder, hooks, resume=True)
