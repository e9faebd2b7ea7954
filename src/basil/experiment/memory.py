"""What a run needs of this machine's memory at the least, said before anything is allocated."""

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from basil.data import DATASETS, Dataset
from basil.errors import UserError
from basil.experiment.options import options_of
from basil.learning.models import MODELS
from basil.protocol.schemes import POOL, runs_on
from basil.recipe import Recipe
from basil.text import amount

NODE = 4096  # bytes: a node's protocol, inbox and samples, before its first model
STEP = 128  # bytes: a batch of one sample
CGROUP = Path("/sys/fs/cgroup/memory.max")


def check_memory(recipe: Recipe, options: dict[str, Any]) -> None:
    """Refuse what cannot fit, by what the recipe alone says; `options`: of its data set."""
    N, learning = recipe.ring.nodes, recipe.learning
    which = "local_epochs" if learning.local_epochs else "local_steps"
    steps = getattr(learning, which)
    if which == "local_steps" and runs_on(recipe.scheme.name) == POOL:  # one does the work of all
        steps *= N - recipe.ring.byzantine
    of_data = getattr(DATASETS[recipe.data.dataset], "memory", lambda **_: 0)
    name = recipe.data.dataset
    sizes = ", ".join(f"{key} = {value}" for key, value in options.items() if type(value) is int)
    _refuse(
        {
            f"data.dataset = {name!r} with {sizes}": of_data(**options),
            f"ring.nodes = {N}": N * NODE,
            f"learning.{which} = {getattr(learning, which)}": steps * STEP,
        },
        machine_memory(),
    )


def check_models(recipe: Recipe, data: Dataset, device: torch.device) -> None:
    """Each node has a model of its own, where they are computed."""
    name, N = recipe.learning.model, recipe.ring.nodes
    build = MODELS[name]
    if MODELS.digest(name) is not None or getattr(build, "trained", False):
        return  # others' code, and what is read from files, may not know a device without memory
    options = options_of(recipe.learning, MODELS, "model")
    try:
        with torch.device("meta"):
            network = build(data.train.x.shape[1:], data.classes, **options)
    except RuntimeError as error:  # a size below 0, or more bytes than there are numbers for
        raise UserError(f"learning.model = {name!r}: {str(error).splitlines()[0]}") from error
    d = sum(parameter.numel() for parameter in network.parameters())
    there = machine_memory()
    if device.type == "cuda":
        there = torch.cuda.get_device_properties(device).total_memory
    what = f"learning.model = {name!r} of {d} parameters on each of {N} nodes"
    _refuse({what: 4 * d * N}, there)


def _refuse(needed: dict[str, int], there: float) -> None:
    total = sum(needed.values())
    if total > there:
        most = max(needed, key=lambda what: needed[what])
        raise UserError(
            f"{most}: such a run needs at least {amount(total)} of memory, and there are"
            f" {amount(there)}"
        )


def machine_memory() -> float:
    """Bytes that this machine has; less where this process may not have all of them."""
    found = math.inf
    with suppress(ValueError, OSError):
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(ValueError, OSError):  # "max", or no Linux
        found = min(found, int(CGROUP.read_text()))
    return found
