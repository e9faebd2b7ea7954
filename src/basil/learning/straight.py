"""A network without what `nn.Module` does around each call of a layer.

It looks for hooks and for parameters by name.  Where layers are small that takes as long as their
arithmetic, and a turn asks for S evaluations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

Layer = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Straight:
    """The same function of the same parameters, in the same operations.

    Of a plain sequence of layers; any other network, and any layer that is not known here, is
    called as it is.  `steady`: all are known, so it is the same in training and in evaluation.
    """

    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, network: nn.Module) -> "Straight":
        if type(network) is not nn.Sequential or _hooked(network):
            return cls((network,))
        return cls(tuple(_straight(layer) for layer in network))

    @property
    def steady(self) -> bool:
        return not any(isinstance(layer, nn.Module) for layer in self.layers)

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def _straight(layer: nn.Module) -> Layer:
    if _hooked(layer):
        return layer
    if type(layer) is nn.Linear:
        return partial(functional.linear, weight=layer.weight, bias=layer.bias)
    if type(layer) is nn.ReLU and not layer.inplace:
        return torch.relu
    if type(layer) is nn.Flatten:
        return partial(torch.flatten, start_dim=layer.start_dim, end_dim=layer.end_dim)
    return layer


def _hooked(layer: nn.Module) -> bool:
    return any(hooks for name, hooks in vars(layer).items() if name.endswith("_hooks"))
