"""numpy's arrays on a CPU and torch's tensors on a GPU, in one text.

A call of numpy's takes a third of the time of torch's, and where units are few, calls are all that
takes time.  Slices, `reshape` and operators are the same in both; here is what is not.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = Any  # NDArray[np.float32] or Tensor


def as_array(tensor: Tensor) -> Array:
    """The same memory, on a CPU as numpy's array."""
    return tensor.numpy() if tensor.device.type == "cpu" else tensor


def quiet(tensor: Tensor) -> AbstractContextManager[object]:
    """numpy warns of what is not finite; torch does not."""
    return np.errstate(all="ignore") if tensor.device.type == "cpu" else nullcontext()


def copy(array: Array) -> Array:
    return array.copy() if isinstance(array, np.ndarray) else array.clone()


def zeros(like: Array) -> Array:
    return np.zeros_like(like) if isinstance(like, np.ndarray) else torch.zeros_like(like)


def times(array: Array, number: Tensor) -> Array:
    return array * (number.numpy() if isinstance(array, np.ndarray) else number)


def where(condition: Array, this: Array | float, that: Array | float) -> Array:
    choose: Any = np.where if isinstance(condition, np.ndarray) else torch.where
    return choose(condition, this, that)


def joined(rows: Sequence[Array]) -> Array:
    """[unit, entry] of several."""
    if len(rows) == 1:
        return rows[0]
    return np.concatenate(rows, 1) if isinstance(rows[0], np.ndarray) else torch.cat([*rows], 1)


def largest(array: Array, axis: int) -> Array:
    return array.max(axis) if isinstance(array, np.ndarray) else array.amax(axis)


def reciprocal(array: Array) -> Array:
    return np.reciprocal(array) if isinstance(array, np.ndarray) else array.reciprocal()
