"""Trainings side by side: one small network does not fill a GPU."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from basil.learning.compute import Job
from basil.learning.cuda.kernels import Kernels
from basil.learning.cuda.launch import Fields, Launch, bits_of
from basil.learning.cuda.side_stream import SideStream
from basil.learning.pool import Batch
from basil.learning.promises import tensor_of

STREAMS = 8  # trainings at a time


class TrainingStreams:
    """`most` trainings at a time."""

    def __init__(self, kernels: Kernels, start: Tensor, most: int = STREAMS) -> None:
        self._kernels, self._start, self._most = kernels, start, most
        self._streams: list[TrainingStream] = []

    def train(self, jobs: Sequence[Job]) -> list[Tensor]:
        wanted, models = min(self._most, len(jobs)), [tensor_of(job.model) for job in jobs]
        while len(self._streams) < wanted:
            self._streams.append(TrainingStream(self._kernels, self._start))
        streams = self._streams[:wanted]
        for i, stream in enumerate(streams):
            # From here on all that this stream was asked for before is done: what has been freed
            # may be used again, and the models to start from are there.
            with stream.side.begin():
                for j in range(i, len(jobs), wanted):
                    models[j] = stream.train(models[j], jobs[j].batches, jobs[j].rate)
        for stream in streams:
            stream.side.wait()
        return models


class TrainingStream:
    """A stream of its own on which models are trained."""

    def __init__(self, kernels: Kernels, start: Tensor) -> None:
        self.side = SideStream(kernels.pool.device)
        self._kernels = kernels
        self._working = kernels.working_model(start)
        self._launches: dict[tuple[int, ...], Launch] = {}

    def train(self, start: Tensor, batches: Sequence[Batch], rate: float) -> Tensor:
        sizes = tuple(len(batch) for batch in batches)
        launch = self._launches.get(sizes)
        if launch is None:
            work = partial(self._steps, sizes)
            launch = Launch(work, sum(sizes) + 1, self._kernels.pool.device)
            self._launches[sizes] = launch
        self._working.model.copy_(start)
        launch([([batch.indices for batch in batches], [bits_of(rate)])])
        return self._working.model.clone()

    def _steps(self, sizes: tuple[int, ...], command: Tensor) -> None:
        fields = Fields(command[0])
        steps = [fields.next(size) for size in sizes]
        rate = fields.next(1).view(torch.float64)[0].float()
        for indices in steps:
            self._kernels.step(self._working, indices, rate, self._kernels.sizes)
        self._kernels.settle(self._working, self._kernels.sizes)
