"""What things cost on the virtual clock."""

from dataclasses import dataclass

from torch import Tensor

from basil.protocol.requests import Body, Combine, Fetch, Score, ScoreAll, Train
from basil.protocol.sharing.basket import Basket

NOTE_BYTES = 64  # a message without a model: who, which round


@dataclass(frozen=True)
class Durations:
    """Seconds for a forward pass of one batch and for one SGD step; a link's rate and latency."""

    forward: float
    step: float
    megabits: float
    latency: float = 0.0
    distance: float = 0.0  # between two models
    average: float = 0.0  # of a node's models of one round

    def compute(self, request: Score | ScoreAll | Train | Combine | Fetch) -> float:
        match request:
            case Score():
                return self.forward
            case ScoreAll():
                return self.forward * len(request.models)
            case Train():
                return self.step * len(request.batches)
            case Fetch():
                return request.count * self.link(4 * request.parameters)
            case Combine():
                return self.distance * request.distances + self.average * request.averages

    def link(self, size: int) -> float:
        """T_comm = 8 · bytes / R (32 d / R for a model)."""
        return self.latency + 8 * size / (self.megabits * 1e6)

    def turn(self, parameters: int, evaluations: int, steps: int) -> float:
        """The longest that an honest turn takes: receive, evaluate, train."""
        return self.link(4 * parameters) + evaluations * self.forward + steps * self.step

    def hop(self, parameters: int, senders: int) -> float:
        """The longest that an honest hop between groups takes: receive, evaluate, average."""
        return senders * (self.link(4 * parameters) + self.forward) + self.average

    def exchange(self, parameters: int, neighbours: int, steps: int) -> float:
        """The longest that an honest round on a graph takes.

        A neighbour may be a round ahead, so that two models of each come in one after the other;
        at most all of them, and the own one, are compared and evaluated.
        """
        links = 2 * neighbours * self.link(4 * parameters)
        work = neighbours * self.distance + (neighbours + 1) * self.forward + 2 * self.average
        return links + work + steps * self.step


def size_of(body: Body) -> int:
    """Bytes on the wire."""
    if isinstance(body, Tensor):
        return 4 * body.numel()
    return body.wire_bytes if isinstance(body, Basket) else NOTE_BYTES
