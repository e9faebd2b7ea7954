"""Several models on one batch, side by side: one small evaluation does not fill a GPU."""

import torch
from torch import Tensor

from basil.learning.cuda.beside import Beside
from basil.learning.cuda.kernels import Kernels
from basil.learning.cuda.launch import Launch, Memory
from basil.learning.pool import Batch

LANES = 8  # evaluations at a time, inside one graph


class Panel:
    """For a fixed number of models and samples."""

    def __init__(self, kernels: Kernels, count: int, samples: int, memory: Memory) -> None:
        device = kernels.pool.device
        self._kernels = kernels
        self._models = torch.zeros(count, kernels.padded, device=device)
        self._losses = torch.zeros(count, samples, device=device)
        self._launch = Launch(self._work, samples, device, memory)
        self._lanes = [Beside(device) for _ in range(min(LANES, count))]

    def score(self, models: Tensor, batch: Batch) -> Tensor:
        """Losses [model, sample]."""
        self._models[:, : models.shape[1]].copy_(models)
        self._launch([batch.indices], [])
        return self._losses.clone()

    def _work(self, samples: Tensor) -> None:
        for first, lane in enumerate(self._lanes):
            with lane.begin():
                for i in range(first, len(self._losses), len(self._lanes)):
                    self._losses[i].copy_(self._kernels.losses(self._models[i], samples))
        for lane in self._lanes:
            lane.wait()
