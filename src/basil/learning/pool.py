"""Samples that live on the compute device, and batches that point into them."""

import warnings
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from basil.data import Samples
from basil.data.samples import Array

TOKENS = (torch.int16, torch.int32, torch.int64)


@dataclass(eq=False, slots=True)
class Batch:
    """Which samples of the pool.

    `inputs` is filled when somebody first computes with them.  A batch is scored against S models
    and then trained on: it is turned into floating point once, and freed with its turn.
    """

    indices: NDArray[np.int64]
    inputs: tuple[Tensor, Tensor] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.indices)


class Pool:
    """Inputs and targets on the device.  Pixels stay bytes until a batch is taken.

    On a CPU, inputs that numpy has mapped from a file stay there: batches are read from it.
    """

    def __init__(
        self,
        samples: Samples,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        device: torch.device | str = "cpu",
        corner: int | None = None,
    ) -> None:
        """`corner`: all that the network looks at of an image; the rest is left out."""
        self.device = torch.device(device)
        x = _tensor(samples.x).to(self.device)
        x = x.float() if x.is_floating_point() else x
        x = x if corner is None else x[..., :corner, :corner]
        self.y = _tensor(samples.y).to(self.device)
        # Convolutions want the channels innermost: so they are stored, and batches gathered.
        self._images = x.ndim == 4 and x.shape[1] > 1
        rows = x.permute(0, 2, 3, 1) if self._images else x
        if not (isinstance(samples.x, np.memmap) and self.device.type == "cpu"):
            rows = rows.contiguous()
            # A dimension of one has whatever stride numpy left it, and convolutions go by strides.
            rows = rows.flatten().view(rows.shape)
        self._rows = rows
        if rows.dtype in TOKENS:
            mean, std = (0.0,), (1.0,)  # nobody asks for them
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
        """Network inputs, (x − mean) / std or tokens, and targets of some samples."""
        if isinstance(which, Tensor):
            which = which.to(self.device)
        return self.gather(self.tensors, which), self.y[which]

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, bool]:
        """What `gather` needs: stored rows, mean, 1 / std, are the channels innermost?"""
        return self._rows, self._mean, self._scale, self._images

    @staticmethod
    def gather(tensors: tuple[Tensor, Tensor, Tensor, bool], which: Tensor | slice) -> Tensor:
        """(x − mean) / std; a function of tensors alone, so that one compiled text serves all.

        Tokens are taken as they are.
        """
        rows, mean, scale, images = tensors
        if rows.dtype in TOKENS:
            return rows[which].long()
        x = rows[which].contiguous().sub(mean).mul(scale)  # a file's rows may be permuted
        return x.permute(0, 3, 1, 2) if images else x

    def trial(self) -> tuple[Tensor, Tensor]:
        """Two samples on which to try a network; of tokens one that has the largest."""
        if self._rows.dtype not in TOKENS:
            return self.take(slice(0, 2))
        return self.take(torch.tensor([0, int(self._rows.flatten(1).amax(1).argmax())]))

    def inputs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The same for a batch, computed once."""
        if batch.inputs is None:
            batch.inputs = self.take(torch.from_numpy(batch.indices))
        return batch.inputs


def _tensor(array: Array) -> Tensor:
    """On an array's own memory, where its rows lie one after the other."""
    with warnings.catch_warnings():  # of a file that cannot be written to; nobody does
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array))
