"""A network as a graph (torch.fx), with the shape of what each of its nodes makes."""

import copy
from typing import Any

from torch import Tensor, fx, nn

from basil.learning.models import CausalAttention, PooledConv2d


def trace(network: nn.Module, sample: Tensor) -> fx.GraphModule:
    """The graph of a copy; `sample`: some inputs."""
    copied = copy.deepcopy(network).eval()
    traced = fx.GraphModule(copied, _Tracer().trace(copied))
    _Shapes(traced).run(sample)
    return traced


def shape_of(node: Any) -> tuple[int, ...]:
    """Of the tensor that a node makes; empty where it makes another thing."""
    known: tuple[int, ...] = node.meta["shape"] if isinstance(node, fx.Node) else ()
    return known


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, name: str) -> bool:
        return isinstance(m, PooledConv2d | CausalAttention) or super().is_leaf_module(m, name)


class _Shapes(fx.Interpreter):
    """(fx's own ShapeProp takes a second to import.)"""

    def run_node(self, n: fx.Node) -> Any:
        made = super().run_node(n)
        n.meta["shape"] = tuple(made.shape) if isinstance(made, Tensor) else ()
        return made
