"""Basil (Algorithm 1): sequential training on a ring with a memory and a choice."""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import torch

from basil.learning.pool import Batch
from basil.protocol.memory import INITIAL, Entry, Memory
from basil.protocol.node import Node
from basil.protocol.requests import (
    Arrival,
    Checkpoint,
    Missing,
    Protocol,
    Receive,
    Record,
    Rejoin,
    Request,
    Score,
    Send,
    Train,
)
from basil.protocol.rules import Candidates, newest
from basil.protocol.turns import Watch


def basil(node: Node) -> Protocol:
    """Choose the stored model with the lowest loss on one's own data, improve it, pass it on.

    Algorithm 1 of the paper, for one node, with dropout and return as in Appendix C.  What the
    paper does when the turn comes (S evaluations) is done here when a model arrives: the same
    numbers, since the batch of a round is drawn before, but only one evaluation is left between
    an arrival and the turn.
    """
    yield from RingMember(node).run()


def r_plain(node: Node) -> Protocol:
    """Train on whatever the previous node sent: the ring without a defence (R-plain, §VI-A).

    The same ring with S = 1 and nothing to compare.  Whoever stands before you is trusted.
    """
    dropouts = node.reach - node.connectivity
    alone = replace(node, connectivity=1, reach=1 + dropouts)
    yield from RingMember(alone, scores=False).run()


class RingMember:
    """One node's part in a ring.  Its attributes are all that it remembers."""

    def __init__(self, node: Node, scores: bool = True) -> None:
        self.node = node
        self.ring = node.ring
        self.scores = scores
        self._rule = node.rule if scores else newest
        self.predecessors = frozenset(self.ring.behind(node.id, node.reach))
        self.successors = self.ring.ahead(node.id, node.reach)
        self.memory = Memory(node.connectivity)
        self.memory.insert(Entry(INITIAL, -1, node.initial_model))  # line 4
        self.model = node.initial_model  # this node's own last model
        self.round = 1  # the round that comes next
        self.turned = 0  # the round of its last turn
        self.newest: dict[int, int] = {}  # sender -> latest turn of which a model was taken
        self.early: dict[int, Arrival] = {}  # sender -> a model from beyond this node's own turn
        self.served: dict[int, int] = {}  # returned node -> round in which it was last served
        self.rule_state: dict[str, Any] = {}
        first_step = self.ring.step(1, self.ring.order[0])
        self.watch = Watch(node.patience, first_step - 1, node.start)

    def run(self) -> Protocol:
        if self.node.state is not None:
            self._restore(self.node.state)
        if self.node.rejoin_round is not None:
            yield from self._rejoin(self.node.rejoin_round)
        while self.round <= self.node.rounds:
            yield from self._take_turn(self.round)

    def _take_turn(self, k: int) -> Protocol:
        """Lines 9–16 for this node in round k."""
        batches = self.node.draw(k)  # private, and drawn before the models arrive
        step = self.ring.step(k, self.node.id)
        for arrival in [a for a in self.early.values() if self._step_of(a) < step]:
            del self.early[arrival.sender]
            yield from self._take_in(arrival, step, batches)
        while self.watch.step < step - 1:
            arrival = yield Receive(until=self.watch.deadline(step))
            if isinstance(arrival, Missing):
                break
            yield from self._take_in(arrival, step, batches)

        candidates = yield from self._scored(k, batches)
        choice = yield from self._rule(candidates)  # line 10: eq. (3)
        self.rule_state = choice.state
        self.model = yield Train(choice.model, batches, self.node.rate(k), self.node.key(k))
        yield Record(k, self.model, candidates.senders, choice.index)
        now = yield Send(self.successors, k, self.model)  # line 14
        self.watch.hear(step, now)
        self.round, self.turned = k + 1, k
        yield Checkpoint(self.round, self._state())

    def _step_of(self, arrival: Arrival) -> int:
        return self.ring.step(arrival.round, arrival.sender)

    def _take_in(
        self, arrival: Arrival, my_step: int, batches: tuple[Batch, ...]
    ) -> Generator[Request, Any, None]:
        """Line 16, with what an honest node must refuse.

        A sender counts once for each of its turns, whatever it sends; and a model that claims to
        come from a turn after mine waits until mine is over.
        """
        if isinstance(arrival.body, Rejoin):
            yield from self._serve(arrival.sender)
            return
        step = self._step_of(arrival)
        if arrival.sender not in self.predecessors or step <= self.newest.get(arrival.sender, -1):
            return
        if step >= my_step:
            self.early[arrival.sender] = arrival
            return
        self.newest[arrival.sender] = step
        entry = Entry(arrival.sender, step, arrival.body)
        if self.scores and self.node.score_on_arrival:
            entry.losses = yield Score(entry.model, batches[0])
            entry.scored_in = self.round
        self.memory.insert(entry)
        self.watch.hear(step, arrival.time)

    def _scored(self, k: int, batches: tuple[Batch, ...]) -> Generator[Request, Any, Candidates]:
        """What is stored, with its losses on this round's batch."""
        entries = self.memory.nearest_first()
        if self.scores:
            for entry in entries:
                if entry.scored_in != k:  # x⁰, or a model of an earlier lap: its sender fell silent
                    entry.losses = yield Score(entry.model, batches[0])
                    entry.scored_in = k
            losses = torch.stack([e.losses.wait() for e in entries if e.losses is not None])
        else:
            losses = torch.zeros(len(entries), 1)
        return Candidates(entries, losses, self.model, self.rule_state)

    def _serve(self, returned: int) -> Generator[Request, Any, None]:
        """Appendix C: send one's last model to a successor that has returned (once a round)."""
        if returned not in self.successors or self.served.get(returned) == self.round:
            return
        self.served[returned] = self.round
        if self.turned:
            yield Send((returned,), self.turned, self.model)
            yield Checkpoint(self.round, self._state())

    def _rejoin(self, first_round: int) -> Generator[Request, Any, None]:
        """Appendix C: announce one's return; the answers arrive like any other model."""
        self.round = first_round
        others = tuple(i for i in self.ring.order if i != self.node.id)
        now = yield Send(others, first_round, Rejoin())
        lap_before = self.ring.step(first_round - 1, self.ring.order[0])
        self.watch = Watch(self.node.patience, lap_before, now)
        yield Checkpoint(self.round, self._state())

    def _state(self) -> dict[str, Any]:
        return {
            "round": self.round,
            "turned": self.turned,
            "model": self.model,
            "memory": self.memory.state(),
            "newest": dict(self.newest),
            "early": [[a.sender, a.round, a.body, a.time] for a in self.early.values()],
            "served": dict(self.served),
            "rule": dict(self.rule_state),
            "heard": [self.watch.step, self.watch.time],
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.round, self.turned = state["round"], state["turned"]
        self.model = state["model"]
        self.memory.restore(state["memory"])
        self.newest = {int(sender): step for sender, step in state["newest"].items()}
        self.early = {fields[0]: Arrival(*fields) for fields in state["early"]}
        self.served = {int(node): k for node, k in state["served"].items()}
        self.rule_state = state["rule"]
        self.watch.step, self.watch.time = state["heard"]
