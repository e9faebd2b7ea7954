"""Where an experiment computes, and with which network."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from basil import rng
from basil.data import Dataset
from basil.errors import UserError
from basil.experiment.options import options_of
from basil.learning.compute import Compute
from basil.learning.layout import layout_of
from basil.learning.metrics import Measure
from basil.learning.models import LOSSES, MODELS, Loss, initialise, loss_named
from basil.learning.optimizers import OPTIMIZERS, Optimizer
from basil.learning.pool import Batch
from basil.protocol.graph.aggregate import distances, weighted_mean
from basil.recipe import MEASURED, Recipe, with_timing


@dataclass(frozen=True)
class Custom:
    """What a user brings from Python instead of naming it in the recipe."""

    model: nn.Module | None = None
    loss: Loss | None = None
    dataset: Dataset | None = None
    metrics: tuple[Measure, ...] = ()


@dataclass(frozen=True)
class Machine:
    """Where to compute, and on a GPU how.

    deterministic: full float32 and fixed algorithms instead of TF32 and the fastest ones, so that
    the same GPU gives the same bits again.  A CPU with one thread always does.
    compiled: by `torch.compile`; None: where a run is long enough for it to pay.
    """

    device: str = "auto"
    deterministic: bool = False
    compiled: bool | None = None

    def __post_init__(self) -> None:
        if self.deterministic and self.compiled:
            raise UserError("--deterministic and --compile do not go together")

    def compiles(self, turns: int, steps: int) -> bool:
        """Half a minute of compilation (seconds, if it was done before) for 0.2 ms a turn."""
        if self.compiled is not None or self.deterministic:
            return bool(self.compiled)
        return turns * (1 + steps) / 2 >= WORTH_COMPILING


WORTH_COMPILING = 100_000  # turns of one step: what is compiled is there for the next run, too


def choose_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or not (index.isdecimal() or name == kind):
        raise UserError(f"--device {name}: it must be auto, cpu, cuda or cuda:0, cuda:1, …")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        have = torch.cuda.device_count()
        raise UserError(f"--device {name}: PyTorch finds {have} GPUs on this machine; use cpu")
    return torch.device(name)


def build_network(recipe: Recipe, data: Dataset, custom: Custom) -> nn.Module:
    """The recipe's network with x⁰ inside; a copy of the user's own, which stays as it is."""
    if custom.model is not None:
        return copy.deepcopy(custom.model)
    name, build = recipe.learning.model, MODELS[recipe.learning.model]
    options = options_of(recipe.learning, MODELS, "model")
    if (data.classes == 0) != getattr(build, "regression", False):
        kind = "regression" if data.classes == 0 else "classification"
        raise UserError(
            f"learning.model = {name!r} does not suit {kind} (data set {data.name}): 'linear' is"
            " for regression, and one's own that has regression = True; the others classify"
        )

    def made() -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # what `initialise` does not know draws from here
            torch.manual_seed(rng.key(recipe.seed, "network"))
            module: nn.Module = build(data.train.x.shape[1:], data.classes, **options)
        if not isinstance(module, nn.Module):
            raise UserError(f"learning.model = {name!r}: it makes {module!r:.40}, no nn.Module")
        if shipped and not getattr(build, "trained", False):  # one's own may come trained
            initialise(module, rng.torch_stream(recipe.seed, "initial model"))
        return module

    shipped = MODELS.digest(name) is None
    network = made()
    if not shipped and not _equal(network, made()):
        raise UserError(
            f"learning.model = {name!r}: made twice, it has other weights; all nodes start from the"
            " same, so draw with torch, or with basil.rng.stream"
        )
    return network


def _equal(one: nn.Module, other: nn.Module) -> bool:
    layout = layout_of(one)
    return layout == layout_of(other) and torch.equal(layout.flatten(one), layout.flatten(other))


def choose_loss(recipe: Recipe, data: Dataset) -> Loss:
    """The recipe's loss; without one cross-entropy, and for regression squares."""
    if not recipe.learning.loss:
        return LOSSES["squares" if data.classes == 0 else "cross-entropy"]
    return loss_named(recipe.learning.loss, options_of(recipe.learning, LOSSES, "loss"))


def choose_optimizer(recipe: Recipe) -> Optimizer:
    learning = recipe.learning
    options = options_of(learning, OPTIMIZERS, "optimizer")
    return Optimizer(learning.optimizer, tuple(options.items()), learning.optimizer_state)


def with_measured_times(recipe: Recipe, compute: Compute, neighbours: int) -> Recipe:
    """Fill in the times that the recipe asks to have measured on this machine."""
    times = ("forward", "step", "distance", "average")
    asked = [key for key in times if getattr(recipe.time, key) == MEASURED]
    if not asked:
        return recipe
    batch = Batch(np.arange(recipe.learning.batch))
    model = compute.initial
    heard = model.repeat(neighbours, 1)
    weights = heard[:, 0] * 0
    jobs: dict[str, Callable[[], object]] = {
        "forward": lambda: compute.score(model, [batch])[0].wait(),
        "step": lambda: compute.train(model, [batch], 0.0, lambda: 0),
        "distance": lambda: distances(model, heard[:1]),
        "average": lambda: weighted_mean(model, heard, weights),
    }
    return with_timing(recipe, {key: median_seconds(jobs[key], compute.device) for key in asked})


def median_seconds(work: Callable[[], object], device: torch.device, times: int = 20) -> float:
    """The median time of some work, warmed up."""
    durations = []
    for _ in range(times + 5):
        begin = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        durations.append(time.perf_counter() - begin)
    return float(np.median(durations[5:]))
