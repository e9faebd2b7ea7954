"""How long the parts of a turn take on this machine: Table III (App. H-D) measured again."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from safetensors.torch import load, save

from basil import rng
from basil.data import Samples
from basil.errors import UserError
from basil.experiment.machine import choose_device, median_seconds
from basil.learning.cuda import compute_for
from basil.learning.models import MODELS, cross_entropy, initialise
from basil.learning.pool import Batch, Pool
from basil.protocol.graph.aggregate import distances, weighted_mean
from basil.theory import PartTimes

SHAPES = {"cifar-cnn": (3, 32, 32), "mlp": (1, 28, 28)}  # the paper's networks and their images
CLASSES = 10


@dataclass(frozen=True)
class Calibration:
    """Seconds, medians of repeated measurements."""

    model: str
    parameters: int
    batch: int
    connectivity: int
    device: str
    threads: int
    forward: float  # one evaluation of a batch: T_perf-based is S of them
    step: float  # T_SGD
    distance: float  # between two models: T_dist-based is one for each neighbour
    average: float  # of S models, T_agg
    hash: float  # SHA-256 of one model
    serialise: float  # one model to bytes, as safetensors
    deserialise: float

    @property
    def times(self) -> PartTimes:
        return PartTimes(self.forward, self.step, self.distance, self.average)

    @property
    def ubar_over_basil(self) -> float:
        """A node's computing time in a round of UBAR over that of Basil, with S models each."""
        S = self.connectivity
        basil = S * self.forward + self.step
        ubar = self.times.scored(S) * self.forward + S * self.distance + self.average + self.step
        return ubar / basil

    @property
    def step_over_forward(self) -> float:
        """One SGD step over one evaluation."""
        return self.step / self.forward


def calibrate(model: str, batch: int, connectivity: int, device: str = "auto") -> Calibration:
    """Measure one of the paper's networks on random pixels: only time is asked for."""
    if model not in SHAPES:
        raise UserError(f"--model {model}: it must be one of {', '.join(SHAPES)}")
    for name, value in (("batch", batch), ("connectivity", connectivity)):
        if value < 1:
            raise UserError(f"--{name} {value}: it must be 1 or more")
    where = choose_device(device)
    shape = SHAPES[model]
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (max(batch, 2), *shape), dtype=np.uint8)
    samples = Samples(pixels, np.arange(len(pixels)) % CLASSES)
    network = MODELS[model](shape, CLASSES)
    initialise(network, rng.torch_stream(0, "initial model"))
    pool = Pool(samples, (128.0,) * shape[0], (64.0,) * shape[0], where)
    compute = compute_for(network, cross_entropy, pool)
    own, some = compute.initial, Batch(np.arange(batch))
    heard = own.repeat(connectivity, 1)
    weights = torch.full((connectivity,), 1 / (connectivity + 1), device=where)
    packed = save({"model": own.cpu()})

    jobs: dict[str, Callable[[], object]] = {
        "forward": lambda: compute.score(own, [some])[0].wait(),
        "step": lambda: compute.train(own, [some], 0.01, lambda: 0),
        "distance": lambda: distances(own, heard),
        "average": lambda: weighted_mean(own, heard, weights),
        "hash": lambda: hashlib.sha256(own.cpu().numpy().tobytes()).digest(),
        "serialise": lambda: save({"model": own.cpu()}),
        "deserialise": lambda: load(packed),
    }
    seconds = {name: median_seconds(job, where) for name, job in jobs.items()}
    seconds["distance"] /= connectivity
    return Calibration(
        model=model,
        parameters=own.numel(),
        batch=batch,
        connectivity=connectivity,
        device=str(where),
        threads=torch.get_num_threads(),
        **seconds,
    )
