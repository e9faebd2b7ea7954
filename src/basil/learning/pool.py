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
        x = torch.from_numpy(np.ascontiguousarray(samples.x))
        self.y = torch.from_numpy(np.ascontiguousarray(samples.y)).to(self.device)
        # Convolutions want the channels innermost: so they are stored, and batches gathered.
        self._images = x.ndim == 4 and x.shape[1] > 1
        self._rows = (x.permute(0, 2, 3, 1) if self._images else x).contiguous().to(self.device)
        shape = (-1,) if self._images else (1, -1) + (1,) * (x.ndim - 2)
        self._mean = torch.tensor(mean, dtype=torch.float32, device=self.device).view(shape)
        self._scale = 1.0 / torch.tensor(std, dtype=torch.float32, device=self.device).view(shape)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def x(self) -> Tensor:
        """The raw inputs, [sample, channel, …]."""
        return self._rows.permute(0, 3, 1, 2) if self._images else self._rows

    def take(self, which: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Network inputs (x − mean) / std and targets of some samples."""
        x = self._rows[which].to(torch.float32).sub(self._mean).mul(self._scale)
        return (x.permute(0, 3, 1, 2) if self._images else x), self.y[which]

    def inputs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The same for a batch, computed once."""
        if batch.inputs is None:
            batch.inputs = self.take(batch.indices)
        return batch.inputs
