"""Several models on one batch, side by side: one small evaluation does not fill a GPU."""

import torch
from torch import Tensor

from basil.learning.cuda.batched import Batched
from basil.learning.cuda.kernels import Kernels
from basil.learning.cuda.launch import GraphMemory, Launch
from basil.learning.cuda.side_stream import SideStream
from basil.learning.pool import Batch

STREAMS = 8  # evaluations at a time, inside one graph


class ParallelScoring:
    """For a fixed number of models and samples: as one computation, if the network is `batched`."""

    def __init__(
        self,
        kernels: Kernels,
        batched: Batched | None,
        count: int,
        samples: int,
        memory: GraphMemory,
    ) -> None:
        device = kernels.pool.device
        self._kernels, self._batched = kernels, batched
        self._models = torch.zeros(count, kernels.padded, device=device)
        self._losses = torch.zeros(count, samples, device=device)
        self._launch = Launch(self._work, samples, device, memory)
        self._sides = [SideStream(device) for _ in range(min(STREAMS, count))]

    def score(self, models: Tensor, batch: Batch) -> Tensor:
        """Losses [model, sample]."""
        self._models[:, : models.shape[1]].copy_(models)
        self._launch([([batch.indices], [])])
        return self._losses.clone()

    def _work(self, command: Tensor) -> None:
        samples = command[0]
        if self._batched is not None:
            every = samples.repeat(len(self._models), 1)
            self._losses.copy_(self._batched.losses(self._models, every))
            return
        for first, side in enumerate(self._sides):
            with side.begin():
                for i in range(first, len(self._losses), len(self._sides)):
                    self._losses[i].copy_(self._kernels.losses(self._models[i], samples))
        for side in self._sides:
            side.wait()
