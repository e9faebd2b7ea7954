"""A convolution and the pooling after it as one kernel, for models of several rings at once.

What is convolved is never written down: of a 3×3 pooling one value in nine is kept.  Only that one
has a gradient, too: so those of weights are sums over the windows that were largest.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

DEPTH = 32  # products that are summed at a time
MANY = 2**15  # pooled values that keep a large GPU busy
SUMMED = 64  # pooled values whose part of a gradient one block of threads sums


@triton.jit  # type: ignore[untyped-decorator]
def _pooled_conv(  # type: ignore[no-untyped-def]
    x, weight, bias, out, which, n, weight_stride, bias_stride,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, OUTPUTS: tl.constexpr,
    KERNEL: tl.constexpr, POOL: tl.constexpr, ACROSS: tl.constexpr, PLACES: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr, KEEP: tl.constexpr,
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
    largest = tl.zeros((ROWS, OUTPUTS), tl.int32)
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
        if KEEP:
            largest = tl.where(total > best, window, largest)
        best = tl.maximum(best, total)
    best += tl.load(bias + ring * bias_stride + output)[None, :]
    there = (ring * n * PLACES + m)[:, None] * OUTPUTS + output[None, :]
    tl.store(out + there, tl.maximum(best, 0.0), mask=inside[:, None])
    if KEEP:
        tl.store(which + there, largest.to(tl.int8), mask=inside[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _gradients(  # type: ignore[no-untyped-def]
    x, out, which, gradient, sums, n,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, OUTPUTS: tl.constexpr,
    KERNEL: tl.constexpr, POOL: tl.constexpr, ACROSS: tl.constexpr, PLACES: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """What some pooled values of one ring add to the gradients of weights, and then of biases."""
    ring = tl.program_id(1).to(tl.int64)
    depth: tl.constexpr = KERNEL * KERNEL * CHANNELS
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sample, place = m // PLACES, m % PLACES
    inside = (m < n * PLACES)[:, None]
    output = tl.arange(0, OUTPUTS)
    there = (ring * n * PLACES + m)[:, None] * OUTPUTS + output[None, :]
    positive = tl.load(out + there, mask=inside, other=0.0) > 0  # of a ReLU
    g = tl.load(gradient + there, mask=inside & positive, other=0.0)
    window = tl.load(which + there, mask=inside, other=0).to(tl.int32)
    corner = ((place // ACROSS) * WIDTH + place % ACROSS) * POOL * CHANNELS
    corner = x + (ring * n + sample) * (HEIGHT * WIDTH * CHANNELS) + corner
    seen = corner[:, None] + ((window // POOL) * WIDTH + window % POOL) * CHANNELS
    to = sums + (ring * tl.num_programs(0) + tl.program_id(0)) * ((depth + 1) * OUTPUTS) + output
    for k in range(depth):
        channel, rest = k // (KERNEL * KERNEL), k % (KERNEL * KERNEL)
        at = ((rest // KERNEL) * WIDTH + rest % KERNEL) * CHANNELS + channel
        value = tl.load(seen + at, mask=inside, other=0.0)
        tl.store(to + k * OUTPUTS, tl.sum(g * value, 0))
    tl.store(to + depth * OUTPUTS, tl.sum(g, 0))


def pooled_conv(x: Tensor, weight: Tensor, bias: Tensor, pool: int) -> Tensor:
    """relu(max-pooling(x ∗ weight) + bias): x [ring, sample, height, width, channel],
    weight [ring, output, channel, k, k]; what comes has x's order of dimensions.

    Gradients are of weight and bias alone: x is data.
    """
    if torch.is_grad_enabled() and weight.requires_grad:
        out: Tensor = _remembered(x.contiguous(), weight, bias, pool)[0]
        return out
    return _forward(x.contiguous(), weight, bias, pool, remember=False)[0]


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor, pool: int, remember: bool
) -> tuple[Tensor, Tensor]:
    """And, to `remember`, the number of the window that was largest."""
    rings, n, height, width, channels = x.shape
    outputs, kernel = weight.shape[1], weight.shape[3]
    out = x.new_empty(_shape(x, weight, pool))
    which = out.new_empty(out.shape if remember else 0, dtype=torch.int8)
    across, places = out.shape[3], out.shape[2] * out.shape[3]
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    values = n * places
    # How many values a block of threads makes: as measured on an H200.
    rows, warps = (32, 2) if outputs == 16 else (128, 8) if rings * values > MANY else (64, 4)
    _pooled_conv[(triton.cdiv(values, rows), rings)](
        x, weight, bias, out, which, n, weight.stride(0), bias.stride(0),
        height, width, channels, outputs, kernel, pool, across, places,
        precision, rows, DEPTH, remember, num_warps=warps, num_stages=2,
    )  # fmt: skip
    return out, which


def _shape(x: Tensor, weight: Tensor, pool: int) -> list[int]:
    rings, n, height, width, _ = x.shape
    kernel = weight.shape[3]
    return [rings, n, (height - kernel + 1) // pool, (width - kernel + 1) // pool, weight.shape[1]]


# An operator of its own: autograd and torch.compile take it as it is.
@torch.library.custom_op("basil::pooled_conv", mutates_args=())
def _remembered(x: Tensor, weight: Tensor, bias: Tensor, pool: int) -> tuple[Tensor, Tensor]:
    return _forward(x, weight, bias, pool, remember=True)


@_remembered.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, pool: int) -> tuple[Tensor, Tensor]:
    out = x.new_empty(_shape(x, weight, pool))
    return out, torch.empty_like(out, dtype=torch.int8)


@torch.library.custom_op("basil::pooled_conv_gradients", mutates_args=())
def _summed(
    x: Tensor, out: Tensor, which: Tensor, gradient: Tensor, pool: int, kernel: int
) -> Tensor:
    """[ring, depth + 1, output]: of weights, and in the last row of biases."""
    rings, n, height, width, channels = x.shape
    _, _, down, across, outputs = out.shape
    blocks = triton.cdiv(n * down * across, SUMMED)
    sums = x.new_empty(rings, blocks, kernel * kernel * channels + 1, outputs)
    _gradients[(blocks, rings)](
        x, out, which, gradient, sums, n,
        height, width, channels, outputs, kernel, pool, across, down * across,
        SUMMED, num_warps=4,
    )  # fmt: skip
    return sums.sum(1)


@_summed.register_fake
def _(x: Tensor, out: Tensor, which: Tensor, gradient: Tensor, pool: int, kernel: int) -> Tensor:
    return x.new_empty(x.shape[0], kernel * kernel * x.shape[-1] + 1, out.shape[-1])


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, _, pool = inputs
    ctx.save_for_backward(x, *output)
    ctx.set_materialize_grads(False)
    ctx.pool, ctx.weight_shape = pool, weight.shape


def _backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    x, out, which = ctx.saved_tensors
    sums = _summed(x, out, which, gradient.contiguous(), ctx.pool, ctx.weight_shape[-1])
    return None, sums[:, :-1].mT.reshape(ctx.weight_shape), sums[:, -1], None


_remembered.register_autograd(_backward, setup_context=_remember)


def fits(x: Tensor, weight: Tensor) -> bool:
    """Whether a layer of these weights is one that the kernels can do for these inputs."""
    outputs = weight.shape[-4]
    data = not (torch.is_grad_enabled() and x.requires_grad)
    return data and weight.shape[-1] == weight.shape[-2] and outputs in (16, 32, 64, 128)
