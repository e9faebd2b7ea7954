"""Basil from Python: your own network, loss and data on the ring."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from basil.data import Dataset
from basil.experiment import Custom, Machine, run_in_foreground, set_up, take_up
from basil.learning.models import Loss
from basil.recipe import Recipe, load, parse
from basil.record.callback import Callback
from basil.record.run_folder import clear
from basil.result import Result, load_models

__all__ = ["Result", "load_models", "resume", "run"]


def run(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    out: str | Path,
    model: nn.Module | None = None,
    loss: Loss | None = None,
    dataset: Dataset | None = None,
    device: str = "auto",
    deterministic: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
    overwrite: bool = False,
) -> Result:
    """Run a recipe (a file, a shipped name, or its content as a dict) into the folder `out`.

    model: any network whose parameters are float32; its present weights are x⁰.  BatchNorm's
    running statistics travel with the model; dropout draws from the node's own stream.
    loss: from outputs and targets to one number for each sample (reduction="none").
    dataset: a `basil.Dataset` of numpy arrays.
    deterministic: on a GPU, the same bits again at the price of some speed (a CPU with one thread
    always gives them).
    callbacks: hear of the run while it goes on, see `basil.record.callback.Callback`.
    progress: show a bar, on a terminal or in a notebook.
    overwrite: a run that is in `out` already is removed first.

    Ctrl-C leaves a checkpoint before it is raised as KeyboardInterrupt; `resume` goes on.

    >>> result = basil.run("demo", out="runs/mine", model=MyNet())       # doctest: +SKIP
    """
    chosen = _recipe(recipe)
    machine = Machine(device, deterministic)
    setup = set_up(chosen, Custom(model, loss, dataset), machine)
    if chosen.canonical and (sentence := setup.compute.symmetries.warning):
        warnings.warn(sentence, stacklevel=2)
    if overwrite:
        clear(Path(out))
    return Result(Path(out), run_in_foreground(setup, Path(out), callbacks, progress))


def resume(
    folder: str | Path,
    *,
    model: nn.Module | None = None,
    loss: Loss | None = None,
    dataset: Dataset | None = None,
    device: str = "auto",
    deterministic: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
) -> Result:
    """Go on with an interrupted run; bring the same model, loss and data that it began with."""
    custom, machine = Custom(model, loss, dataset), Machine(device, deterministic)
    setup = take_up(Path(folder), custom, machine)
    summary = run_in_foreground(setup, Path(folder), callbacks, progress, resume=True)
    return Result(Path(folder), summary)


def _recipe(recipe: str | Path | Mapping[str, Any] | Recipe) -> Recipe:
    if isinstance(recipe, Recipe):
        return recipe
    return parse(recipe) if isinstance(recipe, Mapping) else load(recipe)
