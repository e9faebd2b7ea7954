"""Any function of tensors as one launch."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from basil.learning.cuda.launch import GraphMemory, Launch


class Captured:
    """For arguments of fixed shapes; the function must be one that a CUDA graph can hold."""

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Tensor], memory: GraphMemory
    ) -> None:
        self._function = function
        self._inputs = [torch.empty_like(arg) for arg in args]
        # Those of one type are copied at once.
        kinds = dict.fromkeys(arg.dtype for arg in args)
        self._alike = [[i for i, arg in enumerate(args) if arg.dtype == kind] for kind in kinds]
        self._outputs: Any = None  # of a captured run: always in the same place
        self._launch = Launch(self._work, 0, args[0].device, memory)

    def __call__(self, args: Sequence[Tensor]) -> Any:
        for some in self._alike:
            torch._foreach_copy_([self._inputs[i] for i in some], [args[i] for i in some])
        self._launch([([], [])])
        if isinstance(self._outputs, Tensor):
            return self._outputs.clone()
        return tuple(output.clone() for output in self._outputs)

    def _work(self, command: Tensor) -> None:
        self._outputs = self._function(*self._inputs)
