"""What things cost on the virtual clock."""

from dataclasses import dataclass

from torch import Tensor

from basil.protocol.requests import Body, Score, Train

NOTE_BYTES = 64  # a message without a model: who, which round


@dataclass(frozen=True)
class Timing:
    """Seconds for a forward pass of one batch and for one SGD step; a link's rate and latency."""

    forward: float
    step: float
    megabits: float
    latency: float = 0.0

    def compute(self, request: Score | Train) -> float:
        if isinstance(request, Score):
            return self.forward
        return self.step * len(request.batches)

    def link(self, size: int) -> float:
        """T_comm = 8 · bytes / R (32 d / R for a model)."""
        return self.latency + 8 * size / (self.megabits * 1e6)

    def turn(self, parameters: int, evaluations: int, steps: int) -> float:
        """The longest that an honest turn takes: receive, evaluate, train."""
        return self.link(4 * parameters) + evaluations * self.forward + steps * self.step


def size_of(body: Body) -> int:
    """Bytes on the wire."""
    return 4 * body.numel() if isinstance(body, Tensor) else NOTE_BYTES
