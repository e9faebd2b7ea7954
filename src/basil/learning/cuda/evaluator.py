"""Models on a test set, beside the training: a turn of a ring leaves most of a GPU idle."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from basil.learning.cuda.kernels import Kernels
from basil.learning.cuda.launch import Launch
from basil.learning.cuda.side_stream import SideStream
from basil.learning.pool import Pool

MODELS = 128  # models at a time: of these there are copies, so that the ring may go on


class Evaluator:
    """For one pool of samples, `chunk` of them and up to `room` models at a time."""

    def __init__(self, kernels: Kernels, pool: Pool, samples: int, room: int, chunk: int) -> None:
        self.room = room
        self._kernels = kernels
        self._pool = pool
        self._samples, self._chunk = samples, chunk
        device = pool.device
        self._vectors = torch.zeros(min(room, MODELS), kernels.padded, device=device)
        self._sums = torch.zeros(room, 2, dtype=torch.float64, device=device)
        self._launch = Launch(self._evaluate_one, 2, device)
        self._side = SideStream(device)

    def evaluate(
        self, models: Sequence[Tensor], read: Callable[[Tensor], Callable[[], Tensor]]
    ) -> Callable[[], Tensor]:
        """For each model the sum of its losses and the number of samples classified right.

        `read` fetches the values of the moment at which it is called.
        """
        for start in range(0, len(models), MODELS):
            some = torch.stack(list(models[start : start + MODELS]))
            self._side.wait()  # for what the models that lie here were asked
            self._vectors[: len(some), : some.shape[1]].copy_(some)
            with self._side.begin():
                for i in range(len(some)):
                    self._launch([([], [i, start + i])])
        with self._side.begin():
            return read(self._sums[: len(models)])

    def _evaluate_one(self, command: Tensor) -> None:
        model, place = command[0].split(1)
        vector = self._vectors.index_select(0, model)
        total = torch.zeros_like(self._sums[:1])
        for start in range(0, self._samples, self._chunk):
            stop = min(start + self._chunk, self._samples)
            which = torch.arange(start, stop, device=self._pool.device)
            losses, right = self._kernels.judge(vector, self._pool, which)
            total += torch.stack([losses.sum(dtype=torch.float64), right.sum()])
        self._sums.index_copy_(0, place, total)
