"""A synchronous round on a graph, the same for all graph-based schemes.

Send one's model to the neighbours, wait for theirs of the same round, make the next model of them,
and go on.  What is made of them is the scheme: a function from what was heard to the next model.

A model that arrives early waits for its round, an old one is refused, and a sender counts once a
round.  What a node holds after a round, and what is evaluated, is its model after the local update:
what it will send next.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from basil.errors import UserError
from basil.learning.pool import Batch
from basil.learning.promises import sent
from basil.protocol.node import Node
from basil.protocol.requests import (
    Checkpoint,
    Combine,
    Missing,
    Protocol,
    Receive,
    Record,
    Request,
    Send,
    Train,
)
from basil.protocol.state import kept, restored

AHEAD = 2  # rounds that a neighbour may be ahead; what claims to be from later is not kept

Step: TypeAlias = Generator[Request, Any, Tensor]


@dataclass(frozen=True, eq=False)
class RoundInput:
    """What a node has when the models of a round are in."""

    node: Node
    round: int
    own: Tensor  # x_i
    senders: tuple[int, ...]  # ascending: whose models are here
    bodies: tuple[Tensor, ...]  # their models, as they were received
    batches: tuple[Batch, ...]
    memory: dict[str, Any] = field(default_factory=dict)  # the scheme's own, from round to round
    groups: tuple[tuple[int, ...], ...] = ()  # whose models each body is the mean of; (): one's

    @cached_property
    def models(self) -> Tensor:
        """[sender, parameter]"""
        return torch.stack(self.bodies) if self.bodies else self.own.new_empty(0)

    @property
    def rate(self) -> float:
        return self.node.rate(self.round)

    @property
    def weights(self) -> Tensor:
        """W_ij for each sender; what is missing is shared out among those that are here."""
        given = self.node.on_graph.weights
        own = 1 - sum(given.values())
        groups = self.groups or [(j,) for j in self.senders]
        shares = [sum(given[j] for j in group) for group in groups]
        total = own + sum(shares)
        here = torch.tensor([share / total for share in shares], dtype=self.own.dtype)
        return sent(here, self.own.device)

    def train(self, model: Tensor) -> Step:
        """The local update, eq. (2), from this model."""
        key = partial(self.node.key, self.round)
        trained: Tensor = yield Train(model, self.batches, self.rate, key, self.memory)
        return trained

    def update(self) -> Step:
        """−η ∇f_i(x_i): what the local update changes in one's own model.

        Several local steps: the way that they go from there.
        """
        return (yield from self.train(self.own)) - self.own

    def momentum_step(self, model: Tensor, beta: float) -> Step:
        """x − η m with m ← β m + (1 − β) g, the node's own momentum.

        g is what the local update of this round says: the gradient at x, or, with several local
        steps, the way that they go from there, divided by −η.
        """
        trained = yield from self.train(model)
        if self.rate == 0:
            return trained
        gradient = (model - trained) / self.rate
        last = self.memory.get("momentum")
        last = torch.zeros_like(gradient) if last is None else last
        momentum = self.memory["momentum"] = beta * last + (1 - beta) * gradient
        return model - self.rate * momentum

    def aggregate(self, rule: Callable[[Tensor, Tensor], Tensor], distances: int = 0) -> Step:
        """What a rule makes of one's own and the neighbours' models; one's own, if one is alone.

        distances: how many of them to each neighbour it takes.
        """
        if not self.senders:
            return self.own
        count = distances * len(self.senders)
        made: Tensor = yield Combine(partial(rule, self.own, self.models), count, averages=1)
        return made


Scheme: TypeAlias = Callable[[RoundInput], Step]


@dataclass(frozen=True)
class Partners:
    """Who a node sends to in a round, and who it hears."""

    to: tuple[int, ...]
    sources: frozenset[int]
    ahead: int = AHEAD


def gossip(
    node: Node,
    scheme: Scheme,
    partners: Callable[[int], Partners] | None = None,
    announced: int = 0,
) -> Protocol:
    """One node's part in a graph; `scheme` makes the next model of what was heard.

    partners: from the round; without it, always all neighbours.  announced: see `Send`.
    """
    return GraphMember(node, scheme, partners, announced).run()


@dataclass(eq=False)
class State:
    """All that a node on a graph remembers."""

    model: Tensor
    round: int = 1  # the round that comes next
    sent: float | None = None  # when this node sent its model of that round
    early: dict[tuple[int, int], Tensor] = field(default_factory=dict)  # (round, sender) -> model
    spoke: frozenset[int] = frozenset()  # who was heard in the round before
    memory: dict[str, Any] = field(default_factory=dict)  # the scheme's


class GraphMember:
    """One node on a graph."""

    def __init__(
        self,
        node: Node,
        scheme: Scheme,
        partners: Callable[[int], Partners] | None = None,
        announced: int = 0,
    ) -> None:
        self.announced = announced
        self.node = node
        self.scheme = scheme
        self.mixing = node.on_graph.mixing and node.on_graph.mixing(node)
        self.neighbours = frozenset(node.on_graph.neighbours)
        everybody = Partners(node.on_graph.neighbours, self.neighbours)
        self.partners = partners or (lambda k: everybody)
        saved = node.state
        self.state = State(node.initial_model) if saved is None else restored(State, saved)

    def run(self) -> Protocol:
        state, rejoins = self.state, self.node.rejoin_round
        if rejoins is not None:
            # It was away: it takes part from this round on, with the model that it left with.
            state.round, state.sent, state.early, state.spoke = rejoins, None, {}, self.neighbours
        while state.round <= self.node.rounds:
            yield from self._take_round(state.round)

    def _take_round(self, k: int) -> Protocol:
        state = self.state
        if state.sent is None:
            state.sent = yield Send(self.partners(k).to, k, state.model, self.announced)
            yield Checkpoint(k, kept(state))
        batches = self.node.draw(k)
        here = yield from self._gather(k, state.sent)
        senders = tuple(sorted(here))
        bodies = tuple(here[j] for j in senders)
        memory = state.memory.copy()
        heard = RoundInput(self.node, k, state.model, senders, bodies, batches, memory)
        if self.mixing and senders:
            heard = yield from self.mixing(heard)
        state.model = yield from self.scheme(heard)
        state.memory = memory
        yield Record(k, state.model)
        state.round, state.sent = k + 1, None
        # A node that leaves does so here, before it has said anything in the next round.
        yield Checkpoint(state.round, kept(state))

    def _gather(self, k: int, sent: float) -> Generator[Request, Any, dict[int, Tensor]]:
        """The neighbours' models of round k, or of as many as speak before the deadline.

        A neighbour that spoke in the last round may be late because it waits for a silent one
        itself: it is given twice the patience, so that silence does not spread.  One that was
        silent already is given it once, and costs that every round.
        """
        state, partners = self.state, self.partners(k)
        heard = {j for (_, j) in state.early}
        # Neighbours that may still send a model of round k: not those that are past it.
        waited_for = set(partners.sources - {j for (r, j) in state.early if r >= k})
        while waited_for:
            hopeful = not (waited_for.isdisjoint(state.spoke) and waited_for.isdisjoint(heard))
            arrival = yield Receive(sent + (2 if hopeful else 1) * self.node.patience)
            if isinstance(arrival, Missing):
                break
            if not isinstance(arrival.body, Tensor):
                continue
            heard.add(arrival.sender)  # a model of a past round, too, is a sign of life
            awaited = k <= arrival.round <= k + partners.ahead
            if awaited and arrival.sender in self.partners(arrival.round).sources:
                waited_for.discard(arrival.sender)
                state.early.setdefault((arrival.round, arrival.sender), arrival.body)
        here = {j: model for (r, j), model in state.early.items() if r == k}
        state.early = {(r, j): model for (r, j), model in state.early.items() if r > k}
        state.spoke = (state.spoke - partners.sources) | heard
        return here


def byzantine_tolerated(node: Node, given: int, option: str) -> int:
    """How many neighbours a rule sets aside: what the recipe says, or (−1) b, as far as it can.

    Fewer than half of the neighbours: more would leave nothing.  (Where some are silent, fewer than
    half of those that speak: `among`.)
    """
    neighbours = len(node.on_graph.neighbours)
    most = max(0, (neighbours - 1) // 2)
    if given > most:
        raise UserError(
            f"scheme.{option} = {given}: node {node.id} has {neighbours} neighbours, and"
            f" fewer than half of them can be set aside, so at most {most}"
        )
    return min(node.on_graph.byzantine, most) if given < 0 else given


def among(heard: RoundInput, byzantine: int) -> int:
    """How many of those that speak are set aside."""
    return min(byzantine, max(0, (len(heard.senders) - 1) // 2))


def share(value: float, option: str, *, zero: bool = True) -> None:
    """Raise unless an option lies between 0 and 1."""
    if not (0 <= value <= 1 and (zero or value > 0)):
        least = "from 0" if zero else "above 0"
        raise UserError(f"scheme.{option} = {value}: it must be {least} to 1")
