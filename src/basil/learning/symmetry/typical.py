"""How large a unit's weights are."""

import numpy as np
import torch
from torch import Tensor

from basil.learning.symmetry.arrays import Array

try:  # it comes with torch where there is a GPU for it
    from basil.learning.symmetry.middle_kernel import LONGEST, middle_half
except ImportError:
    LONGEST = 0

FEW = 16  # incoming weights: of fewer, the middle half can vanish while the unit does not


def typical(rows: Array) -> Array:
    """The size of each row [unit, weight]: the mean of the middle half of its |w|.

    The largest, where that is 0 or the weights are few.
    """
    if isinstance(rows, np.ndarray):
        return _typical(rows)
    if rows.device.type == "cpu":
        return torch.from_numpy(_typical(rows.numpy()))
    count = rows.shape[1]
    if count < FEW:
        return rows.abs().amax(1)
    if count <= LONGEST:
        return middle_half(rows)
    sizes = rows.abs()
    middle = middle_mean(sizes, count // 4)
    return torch.where(middle > 0, middle, sizes.amax(1))


def _typical(rows: Array) -> Array:
    sizes, count = np.abs(rows), rows.shape[1]
    if count < FEW:
        return sizes.max(1)
    aside = count // 4
    sizes.sort(1)  # for so few, faster than a partition, whose order would hang on the CPU
    middle = torch.from_numpy(sizes[:, aside : count - aside]).mean(1).numpy()
    return middle if middle.all() else np.where(middle > 0, middle, sizes.max(1))


def middle_mean(rows: Tensor, aside: int) -> Tensor:
    """The mean of each row without its so many smallest and largest; no sort, as GPUs are slow at.

    What is set aside first counts as much as the bound that it lies beyond.
    """
    low = rows.kthvalue(aside + 1).values
    high = rows.kthvalue(rows.shape[1] - aside).values
    total = torch.minimum(torch.maximum(rows, low[:, None]), high[:, None]).sum(1)
    return (total - aside * (low + high)) / (rows.shape[1] - 2 * aside)
