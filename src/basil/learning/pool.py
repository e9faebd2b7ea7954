"""Samples that live on the compute device, and batches that point into them."""

import warnings
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from basil.data import Samples
from basil.data.samples import Array

TOKENS = (torch.int16, torch.int32, torch.int64)
CODED = 2**40  # sample numbers are below it; what is above says how one is changed
WAYS = 2**20  # far more than there are to crop and mirror an image: each is nearly as likely


@dataclass(eq=False, slots=True)
class Batch:
    """Which samples of the pool.

    `inputs` is filled when somebody first computes with them.  A batch is scored against S models
    and then trained on: it is turned into floating point once, and freed with its turn.
    """

    indices: NDArray[np.int64]
    strata: NDArray[np.int64] | None = None  # the class of each sample, where drawn by class
    inputs: tuple[Tensor, Tensor] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.indices)


class Stored(NamedTuple):
    """What a pool holds; all that a function of sample numbers needs, so that one serves all."""

    rows: Tensor
    y: Tensor
    mean: Tensor
    scale: Tensor  # 1 / std
    channels_last: bool  # in the rows, not in what is taken of them
    margin: int  # around each image, where it is cropped


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
        augmented: bool = False,
    ) -> None:
        """`corner`: all that the network looks at of an image; the rest is left out.

        `augmented`: images have a black margin, and what `augment` adds to a number says how one is
        cropped and whether it is mirrored.
        """
        self.device = torch.device(device)
        x = _tensor(samples.x).to(self.device)
        x = x.float() if x.is_floating_point() else x
        x = x if corner is None or augmented else x[..., :corner, :corner]
        margin = x.shape[-1] // 8 if augmented else 0
        # Convolutions want the channels innermost: so they are stored, and batches gathered.
        images = x.ndim == 4 and (x.shape[1] > 1 or augmented)
        rows = x.permute(0, 2, 3, 1) if images else x
        if not (isinstance(samples.x, np.memmap) and self.device.type == "cpu"):
            rows = rows.contiguous()
            # A dimension of one has whatever stride numpy left it, and convolutions go by strides.
            rows = rows.flatten().view(rows.shape)
        if augmented:
            rows = torch.nn.functional.pad(rows, (0, 0, margin, margin, margin, margin))
        if rows.dtype in TOKENS:
            mean, std = (0.0,), (1.0,)  # nobody asks for them
        shape = (-1,) if images else (1, -1) + (1,) * (x.ndim - 2)
        self.stored = Stored(
            rows,
            _tensor(samples.y).to(self.device),
            torch.tensor(mean, dtype=torch.float32, device=self.device).view(shape),
            1.0 / torch.tensor(std, dtype=torch.float32, device=self.device).view(shape),
            images,
            margin,
        )

    def __len__(self) -> int:
        return len(self.stored.rows)

    @property
    def x(self) -> Tensor:
        """The raw inputs, [sample, channel, …]."""
        rows, margin = self.stored.rows, self.stored.margin
        if margin:
            rows = rows[:, margin:-margin, margin:-margin]
        return rows.permute(0, 3, 1, 2) if self.stored.channels_last else rows

    @property
    def y(self) -> Tensor:
        return self.stored.y

    def take(self, which: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Network inputs, (x − mean) / std or tokens, and targets of some samples."""
        if isinstance(which, slice) and self.stored.margin:
            which = torch.arange(len(self))[which]
        if isinstance(which, Tensor):
            which = which.to(self.device)
        return self.gather(self.stored, which)

    @staticmethod
    def gather(stored: Stored, which: Tensor | slice) -> tuple[Tensor, Tensor]:
        """The same, as a function of tensors alone: one compiled text serves all pools."""
        rows = stored.rows
        if stored.margin and isinstance(which, Tensor):
            taken, which = _cropped(rows, which, stored.margin), which & (CODED - 1)
        else:
            taken = rows[which]
        if rows.dtype in TOKENS:
            return taken.long(), stored.y[which]
        x = taken.contiguous().sub(stored.mean).mul(stored.scale)  # a file's rows may be permuted
        return x.permute(0, 3, 1, 2) if stored.channels_last else x, stored.y[which]

    def trial(self) -> tuple[Tensor, Tensor]:
        """Two samples on which to try a network; of tokens one that has the largest."""
        rows = self.stored.rows
        if rows.dtype not in TOKENS:
            return self.take(slice(0, 2))
        return self.take(torch.tensor([0, int(rows.flatten(1).amax(1).argmax())]))

    def inputs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The same for a batch, computed once."""
        if batch.inputs is None:
            batch.inputs = self.take(torch.from_numpy(batch.indices))
        return batch.inputs


def augment(numbers: NDArray[np.int64], stream: np.random.Generator) -> NDArray[np.int64]:
    """The same samples, each mirrored or not, and moved by up to an eighth of its width.

    How, is part of its number: so it is drawn where batches are, and whoever computes with them
    need not know of it.
    """
    return numbers + CODED * stream.integers(0, WAYS, len(numbers))


def _cropped(rows: Tensor, which: Tensor, margin: int) -> Tensor:
    """Images [sample, height, width, channel] of rows with a margin.  Code 0: as they are."""
    code, sides = which // CODED, 2 * margin + 1
    mirrored, place = code % 2 == 1, (code // 2 + sides * sides // 2) % (sides * sides)
    down = torch.arange(rows.shape[1] - 2 * margin, device=rows.device)
    across = torch.arange(rows.shape[2] - 2 * margin, device=rows.device)
    across = torch.where(mirrored[:, None], across.flip(0), across)
    down = (place // sides)[:, None] + down
    across = (place % sides)[:, None] + across
    return rows[(which & (CODED - 1))[:, None, None], down[:, :, None], across[:, None, :]]


def _tensor(array: Array) -> Tensor:
    """On an array's own memory, where its rows lie one after the other."""
    with warnings.catch_warnings():  # of a file that cannot be written to; nobody does
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array))
