"""Models on a test set, beside the training: a turn of a ring leaves most of a GPU idle."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from basil.learning.cuda.batched import Batched
from basil.learning.cuda.kernels import Kernels
from basil.learning.cuda.launch import Launch
from basil.learning.cuda.side_stream import SideStream
from basil.learning.pool import Pool

MODELS = 128  # models at a time: of these there are copies, so that the ring may go on
TOGETHER = 8  # that are one computation, if the network allows it


class Evaluator:
    """For one pool of samples, `chunk` of them and up to `room` models at a time."""

    def __init__(
        self,
        kernels: Kernels,
        batched: Batched | None,
        pool: Pool,
        samples: int,
        room: int,
        chunk: int,
    ) -> None:
        self.room = room
        self._kernels, self._batched = kernels, batched
        self._pool = pool
        self._samples, self._chunk = samples, chunk
        self._together = 1 if batched is None else TOGETHER
        device = pool.device
        self._vectors = torch.zeros(min(room, MODELS), kernels.padded, device=device)
        self._sums = torch.zeros(room, 2, dtype=torch.float64, device=device)
        self._launch = Launch(self._evaluate, 2, device, rings=self._together)
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
                for first in range(0, len(some), self._together):
                    # The last may be there more than once: it has the same outcome.
                    rows = (min(first + i, len(some) - 1) for i in range(self._together))
                    self._launch([([], [row, start + row]) for row in rows])
        with self._side.begin():
            return read(self._sums[: len(models)])

    def _evaluate(self, commands: Tensor) -> None:
        rows, places = commands.unbind(1)
        vectors = self._vectors.index_select(0, rows)
        total = self._sums.new_zeros(len(rows), 2)
        for start in range(0, self._samples, self._chunk):
            stop = min(start + self._chunk, self._samples)
            which = torch.arange(start, stop, device=self._pool.device)
            losses, right = self._judge(vectors, which)
            total += torch.stack([losses.sum(1, dtype=torch.float64), right.sum(1)], 1)
        self._sums.index_copy_(0, places, total)

    def _judge(self, vectors: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        if self._batched is None:
            losses, right = self._kernels.judge(vectors, self._pool, which)
            return losses[None], right[None]
        samples = which.expand(len(vectors), -1)
        return self._batched.judge(vectors, self._pool, samples)
