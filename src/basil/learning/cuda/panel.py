"""Several models on one batch, side by side: one small evaluation does not fill a GPU."""

import torch
from torch import Tensor

from basil.learning.cuda.kernels import Kernels
from basil.learning.cuda.launch import Fields, Launch
from basil.learning.cuda.places import Models
from basil.learning.pool import Batch

LANES = 4  # evaluations at a time, inside one graph


class Panel:
    """For a fixed number of models and samples."""

    def __init__(self, kernels: Kernels, models: Models, count: int, samples: int) -> None:
        device = kernels.pool.device
        self._kernels = kernels
        self._models = models
        self._samples = samples
        self._losses = torch.zeros(count, samples, device=device)
        self._launch = Launch(self._work, samples + count, device)
        lanes = min(LANES, count) if device.type == "cuda" else 0
        self._streams = [torch.cuda.Stream(device) for _ in range(lanes)]

    def score(self, models: list[Tensor], batch: Batch) -> Tensor:
        """Losses [model, sample]."""
        self._models.begin()
        self._launch([batch.indices], [self._models.row(model) for model in models])
        return self._losses.clone()

    def _work(self, command: Tensor) -> None:
        fields = Fields(command)
        samples, rows = fields.next(self._samples), fields.next(len(self._losses))
        if not self._streams:
            self._score(samples, rows, 0, 1)
            return
        here = torch.cuda.current_stream()
        for lane, stream in enumerate(self._streams):
            stream.wait_stream(here)  # while a graph is captured, this makes it a branch
            with torch.cuda.stream(stream):
                self._score(samples, rows, lane, len(self._streams))
        for stream in self._streams:
            here.wait_stream(stream)

    def _score(self, samples: Tensor, rows: Tensor, first: int, step: int) -> None:
        for i in range(first, len(self._losses), step):
            vector = self._models.matrix.index_select(0, rows[i : i + 1])
            self._losses[i].copy_(self._kernels.losses(vector, samples))
