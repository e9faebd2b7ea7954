"""What a turn costs with models whose weights are subnormal: as they are, and counted as zero."""

import numpy as np
from rings import noise, ring
from torch import Tensor

from basil.experiment.machine import median_seconds
from basil.learning.pool import Batch
from basil.learning.subnormal import no_subnormals

TINY = 1e-38  # times a weight of about 0.1: what somebody sends who wants others to be slow
TIMES = 9


def measure() -> dict[str, dict[str, float]]:
    """Milliseconds for the losses of a batch, and how many times an honest model's they are."""
    return {
        "cifar-cnn": _measured("cifar-cnn", (3, 32, 32)),
        "mlp": _measured("mlp", (1, 28, 28)),
    }


def _measured(network: str, shape: tuple[int, ...]) -> dict[str, float]:
    compute = ring(model=network, data=noise(10_000, shape)).compute
    batch = Batch(np.arange(80))

    def milliseconds(model: Tensor) -> float:
        return 1e3 * median_seconds(
            lambda: compute.score(model, [batch])[0].wait(), compute.device, TIMES
        )

    honest = milliseconds(compute.initial)
    lie = compute.initial * TINY
    as_it_is = milliseconds(lie)
    with no_subnormals():
        as_zero = milliseconds(lie)
    return {
        "honest": honest,
        "subnormal": as_it_is,
        "counted as zero": as_zero,
        "ratio": as_it_is / honest,
        "ratio, as zero": as_zero / honest,
    }
