"""A network as functions of a flat vector and of sample numbers: what a GPU's work is made of.

Written so that a CUDA graph can hold it (fixed addresses, no look at a value) and that
`torch.compile` can fuse it.  Vectors are padded with zeros to whole lines: a sum over lines and
then over their results is two quick kernels, where one sum over all is a slow one.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from basil.learning.cuda.compiled_once import compiled_once
from basil.learning.layout import Layout, frozen_norms
from basil.learning.models import Loss, right_share
from basil.learning.pool import Pool, Stored
from basil.learning.symmetry import Canonical

LINE = 512
SHAPES = 4  # that a function is compiled for


class WorkingModel:
    """A vector that is trained in place, and the network's tensors inside it."""

    def __init__(self, vector: Tensor, layout: Layout) -> None:
        self.vector = vector  # [1, padded]
        self.model: Tensor = vector[0, : layout.size]
        views = layout.views(vector[0])
        self.state = {
            slot.name: views[slot.name].detach().requires_grad_(slot.trained)
            for slot in layout.slots
        }
        self.parameters = [tensor for tensor in self.state.values() if tensor.requires_grad]


class Kernels:
    """`like`: of another ring in this process.  If its network is the same, what was compiled for
    it serves here too: parameters and samples are handed in.
    """

    def __init__(
        self,
        network: nn.Module,
        layout: Layout,
        loss: Loss,
        pool: Pool,
        compiled: bool,
        like: "Kernels | None" = None,
        canonical: Canonical | None = None,
        most: int = 2**30,
    ) -> None:
        self.network = network
        self._frozen_norms = frozen_norms(network)
        self.canonical = canonical
        self.most = most  # samples at a time
        self.layout = layout
        self.loss = loss
        self.pool = pool
        self.padded = -(-layout.size // LINE) * LINE
        # Running statistics change in place while gradients are taken: that stays uncompiled.
        self.compiled = compiled and all(slot.trained for slot in layout.slots)
        self._judge: Callable[..., tuple[Tensor, Tensor]] = self._judge_plainly
        self._gradient: Callable[..., Tensor] | None = None
        self._settled = canonical.settled if canonical else None
        self._shapes: Counter[object] = Counter()  # of a function's arguments, so far
        self._fused: dict[object, Callable[..., Any]] = {}
        if like is not None and self.alike(like):
            self.network, self._judge, self._gradient = like.network, like._judge, like._gradient
            self._frozen_norms = like._frozen_norms
            self._settled = like._settled
        elif self.compiled:
            self._judge = compiled_once(self._judge_plainly)
            self._gradient = compiled_once(self._step_plainly)
            if canonical:
                self._settled = compiled_once(canonical.settled)
        if self.compiled:
            for samples in pool.stored[:2]:  # of these there are more in another pool
                torch._dynamo.maybe_mark_dynamic(samples, 0)

    def alike(self, other: "Kernels") -> bool:
        mine, others = ((k.layout, k.loss, k.compiled, repr(k.network)) for k in (self, other))
        if self.canonical is None or other.canonical is None:
            return mine == others and self.canonical is other.canonical
        return mine == others and self.canonical.alike(other.canonical)

    @property
    def sizes(self) -> Tensor:
        """Of the canonical form; of none, nothing."""
        canonical = self.canonical
        return torch.zeros(0, device=self.pool.device) if canonical is None else canonical.sizes

    def working_model(self, start: Tensor) -> WorkingModel:
        vector = torch.zeros(1, self.padded, device=self.pool.device)
        vector[0, : self.layout.size] = start
        return WorkingModel(vector, self.layout)

    def fused(
        self, function: Callable[..., Any], kind: object, of: object, rows: bool = False
    ) -> Callable[..., Any]:
        """A function that will be called for arguments of this kind again; `of`: what it applies,
        whatever its constants are.

        What a rule makes of its losses is a hundred operations on a few numbers: compiled, a dozen.
        That pays where few shapes come again and again, as in a ring; a graph's nodes have as many
        shapes as numbers of neighbours.  `rows`: of any number of rings, two or more.
        """
        if kind not in self._fused:
            self._shapes[of] += 1
            if self.compiled and self._shapes[of] <= SHAPES:
                # What is compiled is kept with a function's code, and only a few times with each.
                called = FunctionType(_called.__code__.replace(), globals())
                made = compiled_once(called)
                function = partial(for_any_rings(made) if rows else made, function)
            self._fused[kind] = function
        return self._fused[kind]

    # -- scoring -------------------------------------------------------------------------------

    def losses(self, vector: Tensor, indices: Tensor) -> Tensor:
        """Per-sample losses; +inf throughout if the model holds a value that is not finite."""
        some = [self.judge(vector, self.pool, part)[0] for part in indices.split(self.most)]
        return torch.cat(some) if len(some) > 1 else some[0]

    def judge(self, vector: Tensor, pool: Pool, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Per-sample losses, and for each sample whether it is classified right."""
        self._mode(training=False)
        if self.compiled:  # how many are scored at once differs from turn to turn
            torch._dynamo.maybe_mark_dynamic(indices, 0)
        with torch.no_grad():
            return self._judge(vector.view(-1), pool.stored, indices)

    def _judge_plainly(
        self,
        vector: Tensor,
        stored: Stored,
        indices: Tensor,
    ) -> tuple[Tensor, Tensor]:
        x, y = Pool.gather(stored, indices)
        state = self.layout.state(self.layout.views(vector))
        outputs = functional_call(self.network, state, (x,))
        losses, right = outcome(self.loss, outputs, y)
        lines = torch.linalg.vector_norm(vector.view(-1, LINE), torch.inf, dim=1)
        return torch.where(lines.amax() < torch.inf, losses, torch.inf), right  # amax keeps nan

    # -- training ------------------------------------------------------------------------------

    def settle(self, working: WorkingModel, sizes: Tensor) -> None:
        """Bring what was trained to canonical form, in place."""
        if self._settled is not None:
            with torch.no_grad():
                working.model.copy_(self._settled(working.model, sizes))

    def step(self, working: WorkingModel, indices: Tensor, rate: Tensor, sizes: Tensor) -> None:
        """x ← x − rate · ∇ mean loss(x), in place.  `sizes`: of the canonical form, its ring's."""
        self._mode(training=True)
        if self._gradient is not None:
            with torch.no_grad():
                new = self._gradient(working.vector, self.pool.stored, indices, rate, sizes)
                working.vector.copy_(new)
            return
        x, y = self.pool.take(indices)
        state = self.layout.state(working.state)
        loss = self.loss(functional_call(self.network, state, (x,)), y).mean()
        gradients = torch.autograd.grad(loss, working.parameters, allow_unused=True)
        pairs = [
            (p, g) for p, g in zip(working.parameters, gradients, strict=True) if g is not None
        ]
        with torch.no_grad():
            if self.canonical is not None:
                whole = self.layout.gather(gradients)
                working.model.copy_(self.canonical.limited(working.model, whole, sizes))
            steps = torch._foreach_mul([g for _, g in pairs], rate)
            torch._foreach_sub_([p for p, _ in pairs], list(steps))

    def _step_plainly(
        self,
        vector: Tensor,
        stored: Stored,
        indices: Tensor,
        rate: Tensor,
        sizes: Tensor,
    ) -> Tensor:
        x, y = Pool.gather(stored, indices)

        def loss(vector: Tensor) -> Tensor:
            state = self.layout.state(self.layout.views(vector.view(-1)))
            outputs = functional_call(self.network, state, (x,))
            return self.loss(outputs, y).mean()

        gradient: Tensor = torch.func.grad(loss)(vector)
        if self.canonical is not None:
            vector = self.canonical.limited(vector[0], gradient[0], sizes)[None]
        return vector - rate * gradient

    def _mode(self, training: bool) -> None:
        if self.network.training != training:
            self.network.train(training)
            for norm in self._frozen_norms:
                norm.eval()


def for_any_rings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled once for any number of rings and samples: with all sizes left open it takes far
    longer.
    """
    leave_open = torch._dynamo.maybe_mark_dynamic

    def call(*args: Any) -> Any:
        for arg in args:
            tensors = arg[:2] if isinstance(arg, tuple) else [arg]  # of what a pool has stored
            for tensor in tensors:
                if isinstance(tensor, Tensor):
                    leave_open(tensor, 0)
                    if tensor.dtype == torch.int64 and tensor.ndim == 2:  # [ring, sample]
                        leave_open(tensor, 1)
        return function(*args)

    return call


def outcome(loss: Loss, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Per-sample losses, and for each sample whether it is classified right."""
    losses = loss(outputs, y).float()
    classifies = outputs.ndim == y.ndim + 1
    return losses, right_share(outputs, y) if classifies else torch.zeros_like(losses)


def _called(function: Callable[..., Any], *args: Tensor) -> Any:
    return function(*args)
