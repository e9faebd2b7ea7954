"""Basil from Python: your own network, loss and data on the ring."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor, nn

from basil.data import Dataset
from basil.experiment import Custom, Hooks, Machine, Simulation, set_up
from basil.experiment import resume as resume_experiment
from basil.learning.models import Loss
from basil.recipe import Recipe, load, parse
from basil.record.callback import Callback
from basil.record.run_folder import MODELS


@dataclass(frozen=True)
class Result:
    """A finished run: where its files are, and its summary (the content of summary.json)."""

    folder: Path
    summary: dict[str, Any]

    def models(self) -> dict[int, dict[str, Tensor]]:
        """The final model of each benign node, ready for `module.load_state_dict`."""
        return load_models(self.folder)


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
) -> Result:
    """Run a recipe (a file, a shipped name, or its content as a dict) into the folder `out`.

    model: any network whose parameters are float32; its present weights are x⁰.  BatchNorm's
    running statistics travel with the model; dropout draws from the node's own stream.
    loss: from outputs and targets to one number for each sample (reduction="none").
    dataset: a `basil.Dataset` of numpy arrays.
    deterministic: on a GPU, the same bits again at the price of some speed (a CPU with one thread
    always gives them).
    callbacks: hear of the run while it goes on, see `basil.record.callback.Callback`.

    >>> result = basil.run("demo", out="runs/mine", model=MyNet())       # doctest: +SKIP
    """
    chosen = _recipe(recipe)
    machine = Machine(device, deterministic)
    setup = set_up(chosen, Custom(model, loss, dataset), machine)
    if chosen.canonical and (sentence := setup.compute.symmetries.warning):
        warnings.warn(sentence, stacklevel=2)
    return Result(Path(out), Simulation(setup).run(Path(out), Hooks(callbacks=callbacks)))


def resume(
    folder: str | Path,
    *,
    model: nn.Module | None = None,
    loss: Loss | None = None,
    dataset: Dataset | None = None,
    device: str = "auto",
    deterministic: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Go on with an interrupted run; bring the same model, loss and data that it began with."""
    custom, machine = Custom(model, loss, dataset), Machine(device, deterministic)
    summary = resume_experiment(Path(folder), custom, machine, Hooks(callbacks=callbacks))
    return Result(Path(folder), summary)


def load_models(folder: str | Path) -> dict[int, dict[str, Tensor]]:
    """The final models in a run folder: node -> state dict."""
    with safe_open(Path(folder) / MODELS, framework="pt") as file:
        layout = json.loads(file.metadata()["layout"])
        return {
            int(name.removeprefix("node-")): {
                part: file.get_tensor(name)[start:stop].view(shape)
                for part, shape, start, stop in layout
            }
            for name in file.keys()  # noqa: SIM118
        }


def _recipe(recipe: str | Path | Mapping[str, Any] | Recipe) -> Recipe:
    if isinstance(recipe, Recipe):
        return recipe
    return parse(recipe) if isinstance(recipe, Mapping) else load(recipe)
