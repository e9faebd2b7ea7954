"""The work of many nodes joined, on a CPU: for small dense networks, whose time goes into calls.

A batch is no longer computed alone and whole, so the last bits of an answer depend on who else is
asking.  Hence this is a path of its own, to be asked for.  Convolutions gain nothing from it (with
filters of their own for each node they are slower), nor can dropout or running statistics be
joined: such networks take the plain path.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from basil.learning.compute import Compute, Job
from basil.learning.models import Loss
from basil.learning.pool import Batch, Pool
from basil.learning.promises import Losses, tensor_of

AT_ONCE = 32  # models: more of them fall out of the caches
SMALL = 50_000  # parameters: beyond, memory is what counts, and joining gains nothing


class BatchedCompute(Compute):
    """The receivers of a model in one pass, the trainings of a moment in one."""

    def __init__(
        self, module: nn.Module, loss: Loss, pool: Pool, *, canonical: bool = False
    ) -> None:
        super().__init__(module, loss, pool, canonical=canonical)
        self.joins = (
            not self.random
            and all(slot.trained for slot in self.layout.slots)
            and not any(isinstance(m, nn.modules.conv._ConvNd) for m in self.network.modules())
            and self.layout.size <= SMALL
        )
        self._gradients: Callable[..., dict[str, Tensor]] = vmap(grad(self._mean_loss))

    def _mean_loss(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return self.loss(functional_call(self.network, parameters, (x,)), y).mean()

    def score(self, model: Tensor, batches: Sequence[Batch]) -> list[Losses]:
        if not self.joins or len(batches) == 1:
            return super().score(model, batches)
        self._load(model, training=False)
        parts = [self.pool.inputs(batch) for batch in batches]
        x, y = torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])
        with torch.no_grad():
            losses = self.loss(self.network(x), y)
        losses = torch.where(model.isfinite().all(), losses, torch.inf)
        return [Losses(part) for part in losses.split([len(batch) for batch in batches])]

    def train_together(self, jobs: Sequence[Job]) -> list[Tensor]:
        sizes = {tuple(len(batch) for batch in job.batches) for job in jobs}
        if not self.joins or len(jobs) == 1 or len(sizes) > 1:
            return super().train_together(jobs)
        self.network.train()
        trained: list[Tensor] = []
        for start in range(0, len(jobs), AT_ONCE):
            some = jobs[start : start + AT_ONCE]
            models = torch.stack([tensor_of(job.model) for job in some])  # [model, parameter]
            tensors = {
                slot.name: models[:, slot.start : slot.stop].view(-1, *slot.shape)
                for slot in self.layout.slots
            }
            rates = torch.tensor([job.rate for job in some])
            for step in range(len(some[0].batches)):
                parts = [self.pool.inputs(job.batches[step]) for job in some]
                x, y = torch.stack([x for x, _ in parts]), torch.stack([y for _, y in parts])
                for name, gradient in self._gradients(tensors, x, y).items():
                    gradient *= rates.view(-1, *(1,) * (gradient.ndim - 1))
                    tensors[name] -= gradient
            trained += [self._formed(self._form(model)) for model in models]
        return trained
