"""The typical size of weights as one kernel, for GPUs; in tensor operations it takes ten.

The canonical form asks for it layer after layer, in every turn.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 8192  # weights in a row, which one block of threads holds


@triton.jit  # type: ignore[untyped-decorator]
def _middle_half(  # type: ignore[no-untyped-def]
    rows, out, stride, COUNT: tl.constexpr, ASIDE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One row.  Floats that are not negative are in the order of their bits.

    So the k-th smallest is the largest number below which there are at most k, found bit by bit.
    """
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < COUNT
    sizes = tl.abs(tl.load(rows + row * stride + at, mask=inside, other=0.0))
    bits = tl.where(inside, sizes.to(tl.int32, bitcast=True), 0x7FFFFFFF)
    low, high = 0, 0
    for i in range(31):
        one = 1 << (30 - i)
        below = tl.sum((bits < (low | one)).to(tl.int32), 0)
        low = tl.where(below <= ASIDE, low | one, low)
        below = tl.sum((bits < (high | one)).to(tl.int32), 0)
        high = tl.where(below < COUNT - ASIDE, high | one, high)
    least = low.to(tl.float32, bitcast=True)  # type: ignore[attr-defined]
    most = high.to(tl.float32, bitcast=True)  # type: ignore[attr-defined]
    middle = tl.where(inside, tl.minimum(tl.maximum(sizes, least), most), 0.0)
    mean = (tl.sum(middle, 0) - ASIDE * (least + most)) / (COUNT - 2 * ASIDE)
    tl.store(out + row, tl.where(mean > 0, mean, tl.max(sizes, 0)))


@torch.library.custom_op("basil::middle_half", mutates_args=())
def middle_half(rows: Tensor) -> Tensor:
    """What `typical` says, for rows on a GPU."""
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    count, out = rows.shape[1], rows.new_empty(len(rows))
    block = triton.next_power_of_2(count)
    warps = min(8, max(1, block // 512))
    _middle_half[(len(rows),)](rows, out, rows.stride(0), count, count // 4, block, num_warps=warps)
    return out


@middle_half.register_fake
def _(rows: Tensor) -> Tensor:
    return rows.new_empty(len(rows))


@middle_half.register_vmap
def _(info: object, in_dims: tuple[int, ...], rows: Tensor) -> tuple[Tensor, int]:
    """Rows are rows, of however many models."""
    rows = rows.movedim(in_dims[0], 0)
    return middle_half(rows.flatten(0, 1)).view(rows.shape[:2]), 0
