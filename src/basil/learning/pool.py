"""Samples that live on the compute device, and batches that point into them."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from basil.data import Samples


@dataclass(eq=False, slots=True)
class Batch:
    """Which samples of the pool; `inputs` is filled when somebody first computes with them.

    A batch is scored against S models and then trained on.  It is turned into floating point once,
    and freed with the turn it was drawn for.
    """

    indices: Tensor
    inputs: tuple[Tensor, Tensor] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.indices)


class Pool:
    """Inputs and targets on the device.  Pixels stay bytes until a batch is taken."""

    def __init__(
        self,
        samples: Samples,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        device: torch.device | str = "cpu",
    ) -> None:
        self.device = torch.device(device)
        self.x = torch.from_numpy(np.ascontiguousarray(samples.x)).to(self.device)
        self.y = torch.from_numpy(np.ascontiguousarray(samples.y)).to(self.device)
        shape = (1, -1) + (1,) * (self.x.ndim - 2)
        self._mean = torch.tensor(mean, dtype=torch.float32, device=self.device).view(shape)
        self._scale = 1.0 / torch.tensor(std, dtype=torch.float32, device=self.device).view(shape)
        # Convolutions on a CPU want the channels innermost.
        self._channels_last = self.x.ndim == 4 and self.x.shape[1] > 1

    def __len__(self) -> int:
        return len(self.x)

    def take(self, which: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Network inputs (x − mean) / std and targets of some samples."""
        x = self.x[which]
        if self._channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        return (x.to(torch.float32) - self._mean) * self._scale, self.y[which]

    def inputs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The same for a batch, computed once."""
        if batch.inputs is None:
            batch.inputs = self.take(batch.indices)
        return batch.inputs
