"""The kernels of `pooled_conv` beside PyTorch's own layers; on a CPU by Triton's interpreter."""

import os
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # before it is imported
pytest.importorskip("triton")
from basil.learning.cuda.pooled_conv import fits, pooled_conv  # noqa: E402


def plainly(x: Tensor, weight: Tensor, bias: Tensor, pool: int) -> Tensor:
    """One ring after the other."""
    made = []
    for images, w, b in zip(x, weight, bias, strict=True):
        pooled = max_pool2d(conv2d(images.permute(0, 3, 1, 2), w), pool)
        made.append((pooled + b[:, None, None]).relu().permute(0, 2, 3, 1))
    return torch.stack(made)


@pytest.fixture
def exactly() -> Iterator[None]:
    """Without TF32."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "pool", "size"),
    [(3, 16, 3, 3, 23), (16, 64, 4, 4, 7), (3, 32, 5, 2, 14)],
)
def test_values_and_gradients(
    channels: int, outputs: int, kernel: int, pool: int, size: int, exactly: None
) -> None:
    stream = torch.Generator().manual_seed(0)
    weights = outputs * channels * kernel**2
    x = torch.randn(2, 7, size, size, channels, generator=stream).to(DEVICE)
    vectors = torch.randn(2, weights + outputs + 5, generator=stream).to(DEVICE).requires_grad_()
    weight = vectors[:, :weights].unflatten(1, (outputs, channels, kernel, kernel))
    bias = vectors[:, weights : weights + outputs]
    assert fits(x, weight)
    found, expected = pooled_conv(x, weight, bias, pool), plainly(x, weight, bias, pool)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    weigh = torch.randn(found.shape, generator=stream).to(DEVICE)
    [ours] = torch.autograd.grad((weigh * found).sum(), vectors)
    [theirs] = torch.autograd.grad((weigh * expected).sum(), vectors)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)
    with torch.no_grad():
        torch.testing.assert_close(pooled_conv(x, weight, bias, pool), found, rtol=0, atol=0)


def test_what_needs_a_gradient_itself_is_left_to_pytorch() -> None:
    x, weight = torch.zeros(1, 1, 7, 7, 3, requires_grad=True), torch.zeros(1, 16, 3, 3, 3)
    assert not fits(x, weight)
    with torch.no_grad():
        assert fits(x, weight)
