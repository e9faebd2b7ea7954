"""Scoring and training on a GPU at the speed of the GPU.

A turn is some fifty small kernels.  Three things keep the device busy:

* **Graphs.**  Each kind of work (score m samples, train on m samples) is captured once as a CUDA
  graph over fixed buffers, from the index of a sample to its loss or to the updated parameters, and
  replayed from then on: one launch instead of fifty.
* **Two lanes.**  Of the S receivers of a model the first one asked for is likely to be next; its
  losses are computed at once, on the lane of the training.  Those of the others are computed beside
  it, on a stream of their own, while the next node trains.
* **No waiting.**  Nothing here reads a value back.  The host runs ahead; `Losses.wait` makes the
  device wait for the device.

Matrix products run in TF32 and cuDNN tries out its algorithms, unless `deterministic` asks for
full float32 and fixed algorithms.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from basil.learning.compute import Compute, Losses
from basil.learning.models import Loss
from basil.learning.pool import Batch, Pool

SIDE_STEP = 240  # side work is done in multiples of this many samples
WARM_UP = 3  # runs before a capture: libraries choose their algorithms in them


@dataclass(eq=False, slots=True)
class Graph:
    """Captured work: what goes in, what comes out."""

    indices: Tensor
    output: Tensor
    graph: torch.cuda.CUDAGraph


class Lane:
    """A stream with a model of its own, and the work that was captured on it."""

    def __init__(self, compute: "GraphCompute", stream: torch.cuda.Stream | None) -> None:
        self.stream = stream  # None: whichever is current
        self.vector = compute.initial.clone()
        views = compute.layout.views(self.vector)
        self.state = {
            slot.name: views[slot.name].detach().requires_grad_(slot.trained)
            for slot in compute.layout.slots
        }
        self.parameters = [tensor for tensor in self.state.values() if tensor.requires_grad]
        self.rate = torch.zeros((), device=compute.device)
        self.graphs: dict[tuple[str, int], Graph] = {}


class DeviceLosses(Losses):
    """Losses from the side lane: valid on a stream that has waited for their event."""

    __slots__ = ("_compute", "_event", "_ticket")

    def __init__(
        self, tensor: Tensor, compute: "GraphCompute", ticket: int, event: torch.cuda.Event
    ) -> None:
        super().__init__(tensor)
        self._compute = compute
        self._ticket = ticket
        self._event = event

    def wait(self) -> Tensor:
        self._compute.join(self._ticket, self._event)
        return self._tensor


class GraphCompute(Compute):
    """The same two primitives as `Compute`, as replayed graphs on two lanes."""

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        pool: Pool,
        *,
        deterministic: bool = False,
    ) -> None:
        super().__init__(module, loss, pool)
        fast = not deterministic
        torch.backends.cuda.matmul.allow_tf32 = fast
        torch.backends.cudnn.allow_tf32 = fast
        torch.backends.cudnn.benchmark = fast
        torch.backends.cudnn.deterministic = deterministic
        self._main = Lane(self, None)
        self._side = Lane(self, torch.cuda.Stream(self.device))
        # Side work is numbered and done in order: to wait for one number is to wait for all before.
        self._ticket = 0
        self._joined = 0

    def _losses(self, state: dict[str, Tensor], indices: Tensor) -> Tensor:
        """From sample numbers to losses: all of it inside the graph."""
        x, y = self.pool.take(indices)
        return self.loss(functional_call(self.network, state, (x,)), y)

    # -- what is captured ----------------------------------------------------------------------

    def _score_work(self, lane: Lane, indices: Tensor) -> Tensor:
        with torch.no_grad():
            losses = self._losses(lane.state, indices)
            return torch.where(lane.vector.isfinite().all(), losses, torch.inf)

    def _train_work(self, lane: Lane, indices: Tensor) -> Tensor:
        loss = self._losses(lane.state, indices).mean()
        gradients = torch.autograd.grad(loss, lane.parameters, allow_unused=True)
        pairs = [(p, g) for p, g in zip(lane.parameters, gradients, strict=True) if g is not None]
        with torch.no_grad():
            steps = torch._foreach_mul([g for _, g in pairs], lane.rate)
            torch._foreach_sub_([p for p, _ in pairs], steps)
        return loss.detach()

    def _captured(self, kind: str, lane: Lane, samples: int) -> Graph:
        """The graph for this kind and size of work, captured when it is first needed."""
        key = (kind, samples)
        if key in lane.graphs:
            return lane.graphs[key]
        work = self._score_work if kind == "score" else self._train_work
        self._training = kind == "train"
        self.network.train(self._training)
        indices = torch.zeros(samples, dtype=torch.int64, device=self.device)
        torch.cuda.synchronize(self.device)
        aside = torch.cuda.Stream(self.device)
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                work(lane, indices)
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(aside):  # torch.cuda.graph() would also sweep all of Python's heap
            graph.capture_begin()
            output = work(lane, indices)
            graph.capture_end()
        torch.cuda.synchronize(self.device)
        lane.vector.copy_(self.initial)  # warming up has trained, and moved running statistics
        lane.graphs[key] = Graph(indices, output, graph)
        return lane.graphs[key]

    # -- the primitives ------------------------------------------------------------------------

    def score(self, model: Tensor, batches: Sequence[Batch]) -> list[Losses]:
        answers = [Losses(self._score_on(self._main, model, batches[0].indices))]
        if len(batches) > 1:
            sizes = [len(batch) for batch in batches[1:]]
            indices = torch.cat([batch.indices for batch in batches[1:]])
            losses, event = self._score_aside(model, indices)
            self._ticket += 1
            parts = losses.split(sizes)
            answers += [DeviceLosses(part, self, self._ticket, event) for part in parts]
        return answers

    def _score_aside(self, model: Tensor, indices: Tensor) -> tuple[Tensor, torch.cuda.Event]:
        self._captured("score", self._side, _rounded(len(indices)))  # a capture waits for all
        here, side = torch.cuda.current_stream(self.device), self._side.stream
        assert side is not None
        side.wait_stream(here)
        with torch.cuda.stream(side):
            losses = self._score_on(self._side, model, indices)
            event = side.record_event()
        # The allocator must not hand out what the other stream may still be reading.
        model.record_stream(side)
        indices.record_stream(side)
        losses.record_stream(here)
        return losses, event

    def _score_on(self, lane: Lane, model: Tensor, indices: Tensor) -> Tensor:
        samples = len(indices)
        graph = self._captured("score", lane, samples if lane is self._main else _rounded(samples))
        lane.vector.copy_(model)
        graph.indices[:samples].copy_(indices)  # what lies beyond is scored in vain
        graph.graph.replay()
        return graph.output[:samples].clone()

    def join(self, ticket: int, event: torch.cuda.Event) -> None:
        """Make the current stream wait for the side work of this number."""
        if ticket > self._joined:
            torch.cuda.current_stream(self.device).wait_event(event)
            self._joined = ticket

    def train(
        self, model: Tensor, batches: Sequence[Batch], rate: float, key: Callable[[], int]
    ) -> Tensor:
        if self.random:  # dropout: a replayed graph cannot be handed this turn's own seed
            return super().train(model, batches, rate, key)
        lane = self._main
        graphs = [self._captured("train", lane, len(batch)) for batch in batches]
        lane.vector.copy_(model)
        lane.rate.fill_(rate)
        for graph, batch in zip(graphs, batches, strict=True):
            graph.indices.copy_(batch.indices)
            graph.graph.replay()
        return lane.vector.clone()


def _rounded(samples: int) -> int:
    """How many of the S receivers are honest differs from turn to turn: few graphs fit all."""
    return -(-samples // SIDE_STEP) * SIDE_STEP


def compute_for(
    module: nn.Module, loss: Loss, pool: Pool, *, deterministic: bool = False
) -> Compute:
    """The path that suits the device.  (The plain path is deterministic anyway.)"""
    if pool.device.type == "cuda":
        return GraphCompute(module, loss, pool, deterministic=deterministic)
    return Compute(module, loss, pool)
