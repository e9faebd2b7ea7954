"""Models on a test set: one launch for each."""

from collections.abc import Sequence

import torch
from torch import Tensor

from basil.learning.cuda.kernels import Kernels
from basil.learning.cuda.launch import Launch
from basil.learning.cuda.places import Models
from basil.learning.pool import Pool

EXAMINED = 2000  # samples at a time


class Examiner:
    """For one pool of samples and up to `room` models at a time."""

    def __init__(
        self, kernels: Kernels, models: Models, pool: Pool, samples: int, room: int
    ) -> None:
        self.room = room
        self._kernels = kernels
        self._models = models
        self._pool = pool
        self._samples = samples
        self._sums = torch.zeros(room, 2, dtype=torch.float64, device=pool.device)
        self._launch = Launch(self._examine, 2, pool.device)

    def examine(self, models: Sequence[Tensor]) -> Tensor:
        """For each model the sum of its losses and the number of samples classified right."""
        for place, model in enumerate(models):
            self._models.begin()
            self._launch([], [self._models.row(model), place])
        return self._sums[: len(models)]

    def _examine(self, command: Tensor) -> None:
        vector = self._models.matrix.index_select(0, command[:1])
        total = torch.zeros_like(self._sums[:1])
        for start in range(0, self._samples, EXAMINED):
            stop = min(start + EXAMINED, self._samples)
            which = torch.arange(start, stop, device=self._pool.device)
            losses, right = self._kernels.judge(vector, self._pool, which)
            total += torch.stack([losses.sum(dtype=torch.float64), right.sum()])
        self._sums.index_copy_(0, command[1:], total)
