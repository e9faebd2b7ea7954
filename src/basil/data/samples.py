"""What a data set is to the rest of Basil: arrays, class names and the scale of the input."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)  # arrays have no single truth value, so `==` would raise
class Samples:
    """Inputs and what is to be learned from them, sample by sample.

    x is uint8 [n, channels, height, width] for images, which stay bytes until a batch is drawn (a
    quarter of the memory), or float32 [n, features].  y is int64 class labels [n], or float32
    targets [n] for regression.  fine is the finer int64 labels [n] below y where a set has two
    levels of classes.
    """

    x: Array
    y: Array
    fine: Labels | None = None

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or (self.fine is not None and len(self.fine) != len(self.y)):
            raise ValueError(f"{len(self.x)} inputs do not go with {len(self.y)} labels")

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test set.  classes = 0 stands for regression, which has no class names.

    The input of a network is (x - mean) / std, with one mean and std for each channel (axis 1 of
    x), or a single one for all of them, on the raw scale of x.
    """

    name: str
    train: Samples
    test: Samples
    classes: int
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
