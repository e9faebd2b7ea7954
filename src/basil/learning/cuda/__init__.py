"""Rings at the speed of a GPU."""

from torch import nn

from basil.learning.compute import Compute
from basil.learning.cuda.compute import GraphCompute
from basil.learning.models import Loss
from basil.learning.optimizers import SGD, Optimizer
from basil.learning.pool import Pool

__all__ = ["GraphCompute", "compute_for"]


def compute_for(
    module: nn.Module,
    loss: Loss,
    pool: Pool,
    *,
    models: int = 128,
    deterministic: bool = False,
    compiled: bool = False,
    canonical: bool = False,
    optimizer: Optimizer = SGD,
    beside: Compute | None = None,
) -> Compute:
    """The path that suits the device.  (The plain path is deterministic anyway.)"""
    if pool.device.type != "cuda":
        return Compute(module, loss, pool, canonical=canonical, optimizer=optimizer)
    return GraphCompute(
        module,
        loss,
        pool,
        models=models,
        deterministic=deterministic,
        compiled=compiled,
        canonical=canonical,
        optimizer=optimizer,
        beside=beside if isinstance(beside, GraphCompute) else None,
    )
