"""Several models on one batch, side by side: one small evaluation does not fill a GPU."""

import torch
from torch import Tensor

from basil.learning.cuda.kernels import Kernels
from basil.learning.cuda.launch import Launch
from basil.learning.pool import Batch

LANES = 8  # evaluations at a time, inside one graph


class Panel:
    """For a fixed number of models and samples."""

    def __init__(self, kernels: Kernels, count: int, samples: int) -> None:
        device = kernels.pool.device
        self._kernels = kernels
        self._models = torch.zeros(count, kernels.padded, device=device)
        self._losses = torch.zeros(count, samples, device=device)
        self._launch = Launch(self._work, samples, device)
        lanes = min(LANES, count) if device.type == "cuda" else 0
        self._streams = [torch.cuda.Stream(device) for _ in range(lanes)]

    def score(self, models: Tensor, batch: Batch) -> Tensor:
        """Losses [model, sample]."""
        self._models[:, : models.shape[1]].copy_(models)
        self._launch([batch.indices], [])
        return self._losses.clone()

    def _work(self, samples: Tensor) -> None:
        if not self._streams:
            self._score(samples, 0, 1)
            return
        here = torch.cuda.current_stream()
        for lane, stream in enumerate(self._streams):
            stream.wait_stream(here)  # while a graph is captured, this makes it a branch
            with torch.cuda.stream(stream):
                self._score(samples, lane, len(self._streams))
        for stream in self._streams:
            here.wait_stream(stream)

    def _score(self, samples: Tensor, first: int, step: int) -> None:
        for i in range(first, len(self._losses), step):
            self._losses[i].copy_(self._kernels.losses(self._models[i], samples))
