"""A convolution and the pooling after it as one kernel, for models of several rings at once.

What is convolved is never written down: of a 3×3 pooling one value in nine is kept.  Without
gradients; a step unfolds (`layers.py`).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

DEPTH = 32  # products that are summed at a time
MANY = 2**15  # pooled values that keep a large GPU busy


@triton.jit  # type: ignore[untyped-decorator]
def _pooled_conv(  # type: ignore[no-untyped-def]
    x, weight, bias, out, n, weight_stride, bias_stride,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, OUTPUTS: tl.constexpr,
    KERNEL: tl.constexpr, POOL: tl.constexpr, ACROSS: tl.constexpr, PLACES: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Some pooled values, all channels, of one ring: the largest product of each window."""
    ring = tl.program_id(1).to(tl.int64)
    depth: tl.constexpr = KERNEL * KERNEL * CHANNELS
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sample, place = m // PLACES, m % PLACES
    inside = m < n * PLACES
    corner = ((place // ACROSS) * WIDTH + place % ACROSS) * POOL * CHANNELS
    corner = x + (ring * n + sample) * (HEIGHT * WIDTH * CHANNELS) + corner
    output = tl.arange(0, OUTPUTS)
    best = tl.full((ROWS, OUTPUTS), float("-inf"), tl.float32)
    for window in range(POOL * POOL):
        here = corner + ((window // POOL) * WIDTH + window % POOL) * CHANNELS
        total = tl.zeros((ROWS, OUTPUTS), tl.float32)
        for first in range(0, depth, DEPTH):
            k = first + tl.arange(0, DEPTH)
            row, rest = k // (KERNEL * CHANNELS), k % (KERNEL * CHANNELS)
            column, channel = rest // CHANNELS, rest % CHANNELS
            seen = here[:, None] + (row * (WIDTH * CHANNELS) + rest)[None, :]
            a = tl.load(seen, mask=inside[:, None] & (k < depth)[None, :], other=0.0)
            at = channel * (KERNEL * KERNEL) + row * KERNEL + column
            b = weight + ring * weight_stride + output[None, :] * depth + at[:, None]
            b = tl.load(b, mask=(k < depth)[:, None], other=0.0)
            total = tl.dot(a, b, total, input_precision=PRECISION)
        best = tl.maximum(best, total)
    best += tl.load(bias + ring * bias_stride + output)[None, :]
    there = out + (ring * n * PLACES + m)[:, None] * OUTPUTS + output[None, :]
    tl.store(there, tl.maximum(best, 0.0), mask=inside[:, None])


def pooled_conv(x: Tensor, weight: Tensor, bias: Tensor, pool: int) -> Tensor:
    """relu(max-pooling(x ∗ weight) + bias): x [ring, sample, height, width, channel],
    weight [ring, output, channel, k, k]; what comes has x's order of dimensions.
    """
    x = x.contiguous()
    rings, n, height, width, channels = x.shape
    outputs, kernel = weight.shape[1], weight.shape[3]
    down, across = (height - kernel + 1) // pool, (width - kernel + 1) // pool
    out = x.new_empty(rings, n, down, across, outputs)
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    values = n * down * across
    # How many values a block of threads makes: as measured on an H200.
    rows, warps = (32, 2) if outputs == 16 else (128, 8) if rings * values > MANY else (64, 4)
    _pooled_conv[(triton.cdiv(values, rows), rings)](
        x, weight, bias, out, n, weight.stride(0), bias.stride(0),
        height, width, channels, outputs, kernel, pool, across, down * across,
        precision, rows, DEPTH, num_warps=warps, num_stages=2,
    )  # fmt: skip
    return out


def fits(weight: Tensor) -> bool:
    """Whether a layer of these weights is one that the kernel can do."""
    outputs = weight.shape[-4]
    return weight.shape[-1] == weight.shape[-2] and outputs in (16, 32, 64, 128)
