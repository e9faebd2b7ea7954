"""What a data set is to the rest of Basil: arrays, class names and the scale of the input."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from basil.errors import UserError

Array = npt.NDArray[Any]
Labels = npt.NDArray[np.int64]

IGNORED = -100  # the label of a token that counts neither as right nor as wrong, as in PyTorch


@dataclass(frozen=True, eq=False)  # arrays have no single truth value, so `==` would raise
class Samples:
    """Inputs and what is to be learned from them, sample by sample.

    x is uint8 [n, channels, height, width] for images, which stay bytes until a batch is drawn (a
    quarter of the memory), or float32 [n, features], or whole numbers [n, length] for tokens.  y is
    int64 class labels [n], for tokens also [n, length] with `IGNORED` where none counts, or float32
    targets [n] or [n, targets] for regression.  fine is the finer int64 labels [n] below y where a
    set has two levels of classes.  key is whom or what each sample comes from, int64 [n]: a
    partition can deal by it.
    """

    x: Array
    y: Array
    fine: Labels | None = None
    key: Labels | None = None

    def __post_init__(self) -> None:
        for name, array in vars(self).items():
            if array is not None and (not isinstance(array, np.ndarray) or array.ndim == 0):
                raise UserError(f"{name} of Samples must be a numpy array, a row a sample")
        if len(self.x) != len(self.y):
            raise UserError(f"{len(self.x)} inputs do not go with {len(self.y)} labels")
        for extra, what in ((self.fine, "finer labels"), (self.key, "keys")):
            if extra is not None and len(extra) != len(self.y):
                raise UserError(f"{len(extra)} {what} do not go with {len(self.y)} labels")

    def __len__(self) -> int:
        return len(self.y)


def are_tokens(x: Array) -> bool:
    """Are these inputs tokens, in a data set that was checked?"""
    return x.dtype.kind == "i"


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test set.  classes = 0 stands for regression, which has no class names.

    The input of a network is (x - mean) / std, with one mean and std for each channel (axis 1 of
    x), or a single one for all of them, on the raw scale of x.  Whole numbers without a mean and
    std, (), are tokens: a network is given them as they are.  Where regression has several
    targets, class_names are theirs.
    """

    name: str
    train: Samples
    test: Samples
    classes: int
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @cached_property
    def sha256(self) -> str:
        """Of all that can be learned from: equal only if every number is."""
        total = hashlib.sha256(repr((self.classes, self.mean, self.std)).encode())
        for samples in (self.train, self.test):
            for array in (samples.x, samples.y, samples.fine, samples.key):
                if array is not None:
                    total.update(f"{array.dtype} {array.shape}".encode())
                    total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return total.hexdigest()

    def facts(self) -> dict[str, Any]:
        """What it was, for the record."""
        return {
            "name": self.name,
            "train": list(self.train.x.shape),
            "test": list(self.test.x.shape),
            "sha256": self.sha256,
        }
