"""Which unit belongs in which place as one kernel, for GPUs; in tensor operations it takes forty.

The canonical form asks for it layer after layer, of every model that a Byzantine node sends.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST = 1024  # units, which one block of threads holds
TILE = 8192  # entries of the likeness that it looks at together


@triton.jit  # type: ignore[untyped-decorator]
def _places(  # type: ignore[no-untyped-def]
    likeness, out, notes, sure, slack,
    UNITS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, PASSES: tl.constexpr,
):  # fmt: skip
    """One model.  `notes`: what threads tell each other, six lines."""
    model, unit = tl.program_id(0), tl.arange(0, BLOCK)
    likeness += model * UNITS * UNITS
    found_at = notes + model * 6 * BLOCK
    taken_at, belongs_at = found_at + BLOCK, found_at + 2 * BLOCK
    best_at, back_at, sure_at = found_at + 3 * BLOCK, found_at + 4 * BLOCK, found_at + 5 * BLOCK
    is_unit = unit < UNITS
    tl.store(found_at + unit, 1 - is_unit.to(tl.int32))
    tl.store(taken_at + unit, 1 - is_unit.to(tl.int32))
    tl.store(belongs_at + unit, unit)
    tl.debug_barrier()
    tried = 0
    while tried < PASSES:
        taken = tl.load(taken_at + unit)
        highest, back = tl.full((BLOCK,), -3.0, tl.float32), tl.zeros((BLOCK,), tl.int32)
        for start in range(0, UNITS, ROWS):
            row = start + tl.arange(0, ROWS)
            inside = (row < UNITS)[:, None] & is_unit[None]
            tile = tl.load(likeness + row[:, None] * UNITS + unit[None], mask=inside, other=-2.0)
            tile += tl.where(row[:, None] == unit[None], slack, 0.0)
            found = tl.load(found_at + row, mask=row < BLOCK, other=1)
            tile = tl.where(inside & ((found[:, None] + taken[None]) > 0), -1.0, tile)
            like, best = tl.max(tile, 1, return_indices=True)
            tl.store(best_at + row, best, mask=row < UNITS)
            tl.store(sure_at + row, (like > sure).to(tl.int32), mask=row < UNITS)
            high, who = tl.max(tile, 0, return_indices=True)
            back = tl.where(high > highest, start + who, back)
            highest = tl.maximum(high, highest)
        tl.store(back_at + unit, back)
        tl.debug_barrier()
        best = tl.load(best_at + unit, mask=is_unit, other=0)
        mutual = is_unit & (tl.load(back_at + best) == unit)
        stays = tl.sum((mutual & (best == unit)).to(tl.int32), 0) == UNITS
        mutual = mutual & (tl.load(sure_at + unit, mask=is_unit, other=0) > 0)
        tl.store(belongs_at + unit, best, mask=mutual)
        tl.store(found_at + unit, 1, mask=mutual)
        tl.store(taken_at + best, 1, mask=mutual)
        tl.debug_barrier()
        # Where all stay, or no pair was found, there would be none in the next pass.
        more = (tl.sum(mutual.to(tl.int32), 0) > 0) & (stays == 0)
        tried = tl.where(more, tried + 1, PASSES)
    found, taken = tl.load(found_at + unit), tl.load(taken_at + unit)
    left = is_unit & (found == 0) & (taken > 0)  # its place is another's
    empty = is_unit & (taken == 0) & (found > 0)
    tl.store(best_at + tl.cumsum(empty.to(tl.int32), 0) - 1, unit, mask=empty)
    tl.debug_barrier()
    rest = tl.load(best_at + tl.cumsum(left.to(tl.int32), 0) - 1, mask=left, other=0)
    belongs = tl.where(left, rest, tl.load(belongs_at + unit))
    tl.store(out + model * UNITS + unit, belongs.to(tl.int64), mask=is_unit)


@torch.library.custom_op("basil::places", mutates_args=())
def places_of(likeness: Tensor, sure: float, slack: float, passes: int) -> Tensor:
    """What `order.places` says, for [model, unit, unit] on a GPU."""
    models, units, _ = likeness.shape
    block = triton.next_power_of_2(units)
    notes = likeness.new_empty((models, 6, block), dtype=torch.int32)
    out = likeness.new_empty((models, units), dtype=torch.int64)
    rows = min(block, max(1, TILE // block))
    _places[(models,)](
        likeness.contiguous(), out, notes, sure, slack, units, block, rows, passes, num_warps=8
    )
    return out


@places_of.register_fake
def _(likeness: Tensor, sure: float, slack: float, passes: int) -> Tensor:
    return likeness.new_empty(likeness.shape[:2], dtype=torch.int64)


@places_of.register_vmap
def _(
    info: object,
    in_dims: tuple[int | None, ...],
    likeness: Tensor,
    sure: float,
    slack: float,
    passes: int,
) -> tuple[Tensor, int]:
    """Models are models, of however many rings."""
    likeness = likeness.movedim(in_dims[0] or 0, 0)
    return places_of(likeness.flatten(0, 1), sure, slack, passes).view(likeness.shape[:3]), 0
