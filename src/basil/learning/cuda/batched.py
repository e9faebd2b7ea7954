"""The functions of `Kernels` for models of several rings at once.

One ring's turn is a gigaflop, a few microseconds of a large GPU, and takes some hundred: it is too
small to fill it.  Those of many rings are not.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from basil.learning.cuda.compiled_once import compiled_once
from basil.learning.cuda.kernels import LINE, Kernels, for_any_rings, outcome
from basil.learning.cuda.layers import apply, layers_of
from basil.learning.pool import Pool, Stored
from basil.learning.promises import Pick, decide

MANY = 2**17  # samples of all rings at a time


class Batched:
    """Models as rows [ring, vector], the numbers of their samples as [ring, sample]."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._layers = layers_of(kernels.network)
        self._judge: Callable[..., tuple[Tensor, Tensor]] = self._judge_plainly
        self._loss: Callable[..., Tensor] = self._loss_plainly
        self._stepped: Callable[..., Tensor] = self._stepped_plainly
        self._settled: Callable[..., Tensor] = self._settled_plainly
        if kernels.compiled:
            self._judge = for_any_rings(compiled_once(self._judge))
            # Two programs, since none goes through torch.autograd.grad; torch.func.grad does not
            # take operators of one's own.
            self._loss = for_any_rings(compiled_once(self._loss))
            self._stepped = for_any_rings(compiled_once(self._stepped))
            self._settled = for_any_rings(compiled_once(self._settled))

    @property
    def possible(self) -> bool:
        """Whether all layers are known, and nothing but what is trained changes in a step."""
        kernels = self._kernels
        canonical = kernels.canonical
        return (
            self._layers is not None
            and all(slot.trained for slot in kernels.layout.slots)
            and not (canonical and canonical.symmetries.pairs)
        )

    def losses(self, vectors: Tensor, samples: Tensor) -> Tensor:
        """[ring, sample]; +inf throughout for a model that holds a value that is not finite."""
        some = samples.split(max(1, MANY // len(samples)), 1)
        found = [self.judge(vectors, self._kernels.pool, part)[0] for part in some]
        return torch.cat(found, 1) if len(found) > 1 else found[0]

    def judge(self, vectors: Tensor, pool: Pool, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Losses, and for each sample whether it is classified right."""
        with torch.no_grad():
            return self._judge(vectors, pool.stored, samples)

    def step(self, vectors: Tensor, samples: Tensor, rates: Tensor, sizes: Tensor) -> Tensor:
        """x ← x − rate · ∇ mean loss(x); the sum over rings has each one's own gradient."""
        leaves = vectors.detach().requires_grad_()
        with torch.enable_grad():
            total = self._loss(leaves, self._kernels.pool.stored, samples)
        [gradients] = torch.autograd.grad(total, leaves)
        return self._stepped(vectors, gradients, rates, sizes)

    def settled(self, vectors: Tensor, sizes: Tensor) -> Tensor:
        """Each in canonical form."""
        return vectors if self._kernels.canonical is None else self._settled(vectors, sizes)

    def decide(self, losses: Tensor, pick: Pick, candidates: int) -> Tensor:
        """What `promises.decide` says of each ring's losses [ring, candidate, sample]."""
        return torch.vmap(lambda some: decide(some, pick, candidates))(losses)

    def _judge_plainly(
        self, vectors: Tensor, stored: Stored, samples: Tensor
    ) -> tuple[Tensor, Tensor]:
        losses, right = self._outcome(vectors, stored, samples)
        lines = torch.linalg.vector_norm(vectors.view(len(vectors), -1, LINE), torch.inf, dim=2)
        return torch.where(lines.amax(1, keepdim=True) < torch.inf, losses, torch.inf), right

    def _outcome(self, vectors: Tensor, stored: Stored, samples: Tensor) -> tuple[Tensor, Tensor]:
        assert self._layers is not None
        kernels, (x, y) = self._kernels, Pool.gather(stored, samples.flatten())
        views = {
            slot.name: vectors[:, slot.start : slot.stop].unflatten(1, slot.shape)
            for slot in kernels.layout.slots
        }
        x = x.unflatten(0, samples.shape)
        outputs = apply(self._layers, kernels.layout.state(views), x).flatten(0, 1)
        losses, right = outcome(kernels.loss, outputs, y)
        return losses.view(samples.shape), right.view(samples.shape)

    def _loss_plainly(self, vectors: Tensor, stored: Stored, samples: Tensor) -> Tensor:
        """The sum of all rings' mean losses."""
        return self._outcome(vectors, stored, samples)[0].mean(1).sum()

    def _stepped_plainly(
        self, vectors: Tensor, gradients: Tensor, rates: Tensor, sizes: Tensor
    ) -> Tensor:
        canonical = self._kernels.canonical
        if canonical is not None:
            vectors = _each(canonical.limited, vectors, gradients, sizes)
        return vectors - rates[:, None] * gradients

    def _settled_plainly(self, vectors: Tensor, sizes: Tensor) -> Tensor:
        assert self._kernels.canonical is not None
        return _each(self._kernels.canonical.settled, vectors, sizes)


def _each(function: Callable[..., Tensor], *args: Tensor) -> Tensor:
    """A function of one ring, for all of them."""
    if args[0].device.type == "cpu":  # where it works with numpy
        return torch.stack([function(*row) for row in zip(*args, strict=True)])
    return torch.vmap(function)(*args)
