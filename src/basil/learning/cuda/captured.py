"""A ring's own function of a tensor as one launch."""

from collections.abc import Callable

import torch
from torch import Tensor

from basil.learning.cuda.launch import GraphMemory, Launch


class Captured:
    """For an argument of this shape; the function must be one that a CUDA graph can hold."""

    def __init__(
        self, function: Callable[[Tensor], Tensor], arg: Tensor, memory: GraphMemory
    ) -> None:
        self._function = function
        self._input = torch.empty_like(arg)
        self._output = self._input  # of a captured run: always in the same place
        self._launch = Launch(self._work, 0, arg.device, memory)

    def __call__(self, arg: Tensor) -> Tensor:
        self._input.copy_(arg)
        self._launch([([], [])])
        return self._output.clone()

    def _work(self, command: Tensor) -> None:
        self._output = self._function(self._input)
