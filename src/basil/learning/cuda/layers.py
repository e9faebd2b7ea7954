"""Layers for models of several rings at once: parameters [ring, …], samples [ring, sample, …].

Linear layers are batched matrix products; convolutions are, too, once their inputs are unfolded.
What has no parameters is applied to all samples alike.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, max_pool2d, pad

from basil.learning.models import Crop, PooledConv2d

try:  # it comes with torch where there is a GPU for it
    from basil.learning.cuda import pooled_conv
except ImportError:
    pooled_conv = None  # type: ignore[assignment]

State = Mapping[str, Tensor]
Layer = Callable[[Tensor, State], Tensor]

PLAIN = (
    Crop, nn.Flatten, nn.Identity, nn.ReLU, nn.LeakyReLU, nn.GELU, nn.ELU, nn.SiLU, nn.Sigmoid,
    nn.Tanh, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d,
)  # fmt: skip


def layers_of(network: nn.Module, name: str = "") -> list[Layer] | None:
    """A network's layers, one after the other; None if one of them is not known here."""
    if isinstance(network, nn.Sequential):
        found = [layers_of(part, f"{name}{key}.") for key, part in network.named_children()]
        known = [some for some in found if some is not None]
        return [layer for some in known for layer in some] if len(known) == len(found) else None
    layer = _layer(network, name)
    return None if layer is None else [layer]


def apply(layers: list[Layer], state: State, x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x, state)
    return x


def _layer(part: nn.Module, name: str) -> Layer | None:
    weight, bias = f"{name}weight", f"{name}bias" if getattr(part, "bias", None) is not None else ""
    match part:
        case PooledConv2d():
            return lambda x, state: _pooled(part, x, state[weight], state[bias])
        case nn.Conv2d(groups=1, dilation=(1, 1), padding_mode="zeros", padding=tuple()):
            return lambda x, state: _conv(part, x, state[weight], state.get(bias))
        case nn.Linear():
            return lambda x, state: _linear(x, state[weight], state.get(bias))
        case nn.LayerNorm(elementwise_affine=True):
            return lambda x, state: _layer_norm(part, x, state[weight], state.get(bias))
    if type(part) in PLAIN:
        return lambda x, state: part(x.flatten(0, 1)).unflatten(0, x.shape[:2])
    return None


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = x.flatten(1, -2)
    out = rows @ weight.mT if bias is None else torch.baddbmm(bias[:, None], rows, weight.mT)
    return out.view(*x.shape[:-1], -1)


def _layer_norm(part: nn.LayerNorm, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    normed = layer_norm(x, part.normalized_shape, eps=part.eps)
    ones = (1,) * (x.ndim - weight.ndim)
    normed = normed * weight.view(len(weight), *ones, *weight.shape[1:])
    return normed if bias is None else normed + bias.view(len(bias), *ones, *bias.shape[1:])


def _unfolded(x: Tensor, weight: Tensor, stride: tuple[int, ...]) -> Tensor:
    """The convolution of x [ring, sample, channel, …]: [ring, sample, height, width, output]."""
    x = x.permute(0, 1, 3, 4, 2)
    windows = x.unfold(2, weight.shape[3], stride[0]).unfold(3, weight.shape[4], stride[1])
    rows = windows.flatten(4).flatten(1, 3)
    return (rows @ weight.flatten(2).mT).view(*windows.shape[:4], -1)


def _conv(part: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    down, across = map(int, part.padding)
    out = _unfolded(pad(x, (across, across, down, down)), weight, part.stride)
    out = out if bias is None else out + bias[:, None, None, None]
    return out.permute(0, 1, 4, 2, 3)


def _pooled(part: PooledConv2d, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if x.is_cuda and pooled_conv and pooled_conv.fits(x, weight):
        channels_last = x.permute(0, 1, 3, 4, 2)
        out = pooled_conv.pooled_conv(channels_last, weight, bias, part.pool)
        return out.permute(0, 1, 4, 2, 3)
    out = _unfolded(x, weight, (1, 1)).permute(0, 1, 4, 2, 3)
    pooled: Tensor = max_pool2d(out.flatten(0, 1), part.pool).unflatten(0, x.shape[:2])
    return (pooled + bias[:, None, :, None, None]).relu()
