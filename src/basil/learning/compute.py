"""The two things that cost time: scoring a model and training it.  Plain path: CPU, and reference.

Flat vectors in, flat vectors out.  One network object serves all nodes: its parameters are views
into one working vector, so that "load model j" is a single copy.

Arithmetic is by request: a batch is always computed as a whole and by itself, never joined with
another node's or cut into pieces.  (The last bits of a matrix product depend on its shape.)  So the
answer to a request does not depend on who else is asking: one simulated ring, a pool of processes
and peers on a network agree bit for bit on a CPU with one thread.  `cuda.py` has the path for GPUs.
"""

import math
import platform
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from basil.errors import UserError
from basil.learning.layout import Layout, frozen_norms, layout_of
from basil.learning.metrics import Metric, Tally
from basil.learning.models import Loss, right_share
from basil.learning.optimizers import SGD, Optimizer
from basil.learning.pool import Batch, Pool
from basil.learning.promises import (
    Argument,
    Losses,
    Pick,
    Promise,
    Selection,
    decide,
    kept,
    laid_out,
    tensor_of,
)
from basil.learning.straight import Straight
from basil.learning.symmetry import Canonical, Symmetries, find

Tested = list[tuple[float, ...]]
"""Mean loss and accuracy of each of some models, and then the metrics that were asked for."""

# Test samples at a time: about what a cache holds; enough to fill a GPU, where a wide network still
# fits beside others.  Of language models fewer: so many outputs at most, a gigabyte.
CPU_CHUNK, GPU_CHUNK, OUTPUTS = 200, 1000, 2**28
NOW: AbstractContextManager[None] = nullcontext()
ARM = platform.machine() in ("aarch64", "arm64")
LARGE = 10_000_000  # parameters, frozen ones too: such a network keeps a GPU busy by itself


class Job(Protocol):
    """A model to train: what a `Train` request says."""

    @property
    def model(self) -> Tensor | Selection: ...
    @property
    def batches(self) -> tuple[Batch, ...]: ...
    @property
    def rate(self) -> float: ...
    @property
    def key(self) -> Callable[[], int]: ...
    @property
    def memory(self) -> dict[str, Any]: ...


class Compute:
    """Score and train one network on one device.

    `canonical`: what is trained and what arrives is brought to canonical form.
    """

    late = False  # are promises kept later than they are made?

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        pool: Pool,
        *,
        canonical: bool = False,
        optimizer: Optimizer = SGD,
    ) -> None:
        if ARM:  # a call of oneDNN costs more there than a small network's arithmetic
            torch.backends.mkldnn.set_flags(False)
        self.pool = pool
        self.device = pool.device
        self.loss = loss
        self.optimizer = optimizer
        self.layout: Layout = layout_of(module)
        self.network = module.to(self.device)
        self.initial: Tensor = self.layout.flatten(self.network)
        self._vector = self.initial.clone()
        self._bind()
        self._forward = Straight.of(self.network)
        self._steady = self._forward.steady
        self._parameters = [p for p in self.network.parameters() if p.requires_grad]
        self._frozen_norms = frozen_norms(self.network)
        self.random = any(
            isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0
            for part in self.network.modules()
        )
        self.large = sum(p.numel() for p in self.network.parameters()) > LARGE
        self._probe()
        self.canonical: Canonical | None = None
        self._in_form: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()
        if canonical:
            self.canonical = Canonical(self.symmetries, self.initial)
            self.initial = self._formed(self.canonical(self.initial))

    @cached_property
    def symmetries(self) -> Symmetries:
        return find(self.network, self.layout, self.pool.take(slice(0, 2))[0])

    @property
    def joins(self) -> bool:
        """Can work of several rings be one computation?"""
        return False

    @property
    def waited(self) -> int:
        """How often rings have waited for others so far."""
        return 0

    def later(self) -> AbstractContextManager[None]:
        """What is asked for in here may wait for what other rings ask for, until `catch_up`."""
        return NOW

    def waits(self) -> bool:
        """Somebody will look at what was asked for.  Whether others are to go on before that, since
        it is to be done with theirs: it counts as `waited`.
        """
        return False

    def catch_up(self) -> None:
        """Do what waits, before anybody looks at it."""

    def admit(self, model: Tensor) -> Tensor:
        """A model that arrives, in canonical form.  What was trained here is in it already."""
        if self.admitted(model):
            return model
        return self._formed(self._in_canonical_form(model))

    def admitted(self, model: Tensor) -> bool:
        """Whether it is known to be in canonical form, or none is asked for."""
        return self.canonical is None or self._in_form.get(id(model)) is model

    def _in_canonical_form(self, model: Tensor) -> Tensor:
        assert self.canonical is not None
        return self.canonical(model)

    def _form(self, model: Tensor) -> Tensor:
        """A copy, in canonical form where that is asked for."""
        return model.clone() if self.canonical is None else self.canonical(model)

    def _formed(self, model: Tensor) -> Tensor:
        """Remember that a model is in canonical form."""
        if self.canonical is not None:
            self._in_form[id(model)] = model
        return model

    def _bind(self) -> None:
        """Make what travels a view into the working vector; of half precision, a copy of it."""
        views = self.layout.views(self._vector)
        state = self.network.state_dict(keep_vars=True)
        for slot in self.layout.slots:
            if slot.dtype == torch.float32:
                state[slot.name].data = views[slot.name]
        self._halves = [(state[s.name], views[s.name]) for s in self.layout.halves]
        self._places = self.layout.trained(self._vector)

    def _load(self, model: Tensor, training: bool) -> None:
        self._vector.copy_(model)
        self._round_halves()
        if not self._steady and self.network.training != training:
            self.network.train(training)
            for norm in self._frozen_norms:
                norm.eval()

    def _round_halves(self) -> None:
        for parameter, view in self._halves:
            parameter.data.copy_(view)

    def _probe(self) -> None:
        """A loss must be one number a sample: a mean over the batch would hide its spread."""
        self._load(self.initial, training=False)
        x, y = self.pool.trial()
        try:
            with torch.no_grad():
                outputs = self.network(x)
                losses = self.loss(outputs, y)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, IndexError) as error:
            raise UserError(
                f"model: it cannot be applied to this data set's samples of shape"
                f" {tuple(x.shape[1:])}: {str(error).splitlines()[0]}"
            ) from error
        if losses.shape != (len(x),):
            raise UserError(
                f"loss: it must return one number for each sample, so a vector of {len(x)} for"
                f" {len(x)} samples, not shape {tuple(losses.shape)}; use reduction='none'"
            )
        most = GPU_CHUNK if self.device.type == "cuda" else CPU_CHUNK
        self.most = max(1, OUTPUTS // max(1, outputs[0].numel()))  # samples, for their outputs
        self.chunk = min(most, self.most)
        self.classifies = outputs.ndim == y.ndim + 1  # scores of classes, for each label

    def score(self, model: Tensor, batches: Sequence[Batch]) -> list[Losses]:
        """Per-sample losses of one model on several batches (+inf if the model is not finite)."""
        # A sum is finite only where all of its terms are, and takes a tenth of the time.
        if not (math.isfinite(model.sum()) or model.isfinite().all()):
            return [Losses(model.new_full((len(batch),), torch.inf)) for batch in batches]
        self._load(model, training=False)
        with torch.no_grad():
            inputs = map(self.pool.inputs, batches)
            return [Losses(self.loss(self._forward(x), y).float()) for x, y in inputs]

    def score_all(self, models: Tensor, batch: Batch) -> Losses:
        """Per-sample losses of the rows of a matrix of models on one batch: [model, sample]."""
        return Losses(torch.stack([self.score(model, [batch])[0].wait() for model in models]))

    def select(
        self, models: Sequence[Tensor], losses: Sequence[Losses], own: Tensor, pick: Pick
    ) -> Selection:
        """One of the models by their losses; one's own if the rule's pick is garbage."""
        index = decide(torch.stack([promise.wait() for promise in losses]), pick, len(models))
        return Selection([*models, own], int(index))

    def combine(self, work: Callable[..., Any], args: Sequence[Argument]) -> Any:
        """What a `Combine` asks for."""
        return work(*laid_out(args))

    def train(
        self,
        model: Tensor | Selection,
        batches: Sequence[Batch],
        rate: float,
        key: Callable[[], int],
        memory: dict[str, Any] | None = None,
    ) -> Tensor:
        """One step for each batch; of SGD, x ← x − rate · ∇ mean loss(x), eq. (2).

        `memory`: its node's, where the optimiser's state lies between turns.
        """
        steps = partial(self._steps, batches, rate, {} if memory is None else memory)
        self._load(tensor_of(model), training=True)
        if not self.random:
            steps()
        else:  # dropout draws from torch's global state: lend it this turn's stream
            devices = [self.device] if self.device.type == "cuda" else []
            with torch.random.fork_rng(devices=devices):
                torch.manual_seed(key())
                steps()
        return self._formed(self._form(self._vector))

    def train_together(self, jobs: Sequence[Job]) -> list[Tensor]:
        """All that nodes ask for at one moment: here, one after the other."""
        return [self.train(job.model, job.batches, job.rate, job.key, job.memory) for job in jobs]

    def _steps(self, batches: Sequence[Batch], rate: float, memory: dict[str, Any]) -> None:
        remembered = self.optimizer.recall(memory)
        for batch in batches:
            x, y = self.pool.inputs(batch)
            loss = self.loss(self._forward(x), y).mean()
            gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
            with torch.no_grad():
                whole = self.layout.gather(gradients)
                if self.canonical is not None:
                    limited = self.canonical.limited(self._vector, whole, self.canonical.sizes)
                    if limited is not self._vector:
                        self._vector.copy_(limited)
                if self.optimizer.plain:
                    self._vector.sub_(whole, alpha=rate)
                else:
                    new = self.optimizer.step(self._vector, whole, rate, remembered)
                    for place, view in zip(self._places, self.layout.trained(new), strict=True):
                        place.copy_(view)
                self._round_halves()
        self.optimizer.keep(remembered, memory)

    def indices(self, selections: Sequence[Selection]) -> Promise[list[int]]:
        """Which one each of them is: read together, so that a GPU is waited for once."""
        return kept([selection.index for selection in selections])

    def test(
        self, models: Sequence[Tensor], pool: Pool, samples: int, metrics: Sequence[Metric] = ()
    ) -> Promise[Tested]:
        """Mean loss, accuracy (nan for regression) and metrics on a pool's first samples."""
        if not metrics:
            return kept(self._tested(models, pool, samples))
        found: Tested = []
        for model in models:
            tallies = [Tally(metric) for metric in metrics]
            [known] = self._tested([model], pool, samples, tallies)
            found.append((*known, *(tally.value() for tally in tallies)))
        return kept(found)

    def _tested(
        self, models: Sequence[Tensor], pool: Pool, samples: int, tallies: Sequence[Tally] = ()
    ) -> Tested:
        """Mean loss and accuracy; `tallies` see all outputs."""
        losses = torch.zeros(len(models), dtype=torch.float64, device=self.device)
        right = torch.zeros_like(losses)
        with torch.no_grad():
            for start in range(0, samples, self.chunk):
                x, y = pool.take(slice(start, min(start + self.chunk, samples)))
                for i, model in enumerate(models):
                    self._load(model, training=False)
                    outputs = self._forward(x)
                    for tally in tallies:
                        tally.add(outputs, y)
                    losses[i] += self.loss(outputs, y).sum(dtype=torch.float64)
                    if self.classifies:
                        right[i] += right_share(outputs, y).sum()
        accuracy = (right / samples).tolist() if self.classifies else [float("nan")] * len(models)
        return list(zip((losses / samples).tolist(), accuracy, strict=True))
