"""Basil (Algorithm 1): sequential training on a ring with a memory and a choice."""

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from basil.learning.pool import Batch
from basil.learning.promises import Losses, Selection
from basil.protocol.calendar import Calendar
from basil.protocol.memory import INITIAL, Entry, Memory, pack, unpack
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
from basil.protocol.rules import Candidates, Choice, Deliberation, Rule
from basil.protocol.turns import Watch


def basil(node: Node) -> Protocol:
    """Choose the stored model with the lowest loss on one's own data, improve it, pass it on.

    Algorithm 1 of the paper, for one node, with dropout and return as in Appendix C.  What the
    paper does when the turn comes (S evaluations) is done here when a model arrives: the same
    numbers, since the batch of a round is drawn before, but only one evaluation is left between
    an arrival and the turn.
    """
    return RingMember(node).run()


def basil_published(node: Node) -> Protocol:
    """Basil as published: models as they come, not in canonical form (scheme.canonical = false).

    Beside `basil`, to see what the canonical form is for (docs/research/symmetry.md).
    """
    return basil(node)


def r_plain(node: Node) -> Protocol:
    """Train on whatever the previous node sent: the ring without a defence (R-plain, §VI-A).

    The same ring with S = 1 and nothing to compare.  Whoever stands before you is trusted.
    """
    dropouts = node.on_ring.reach - node.on_ring.connectivity
    alone = replace(
        node, on_ring=replace(node.on_ring, connectivity=1, reach=1 + dropouts, rule=None)
    )
    return RingMember(alone, scores=False).run()


def _trust_the_nearest(candidates: Candidates) -> Deliberation:
    yield from ()
    nearest = Selection(candidates.models, 0)
    return Choice(nearest, nearest)


class RingMember:
    """One node's part in a ring.  Its attributes are all that it remembers.

    Rounds are those of this ring.  Where it is one ring of several, `calendar` says how they are
    numbered between nodes, and `GroupMember` has the rest.
    """

    def __init__(self, node: Node, scores: bool = True, calendar: Calendar | None = None) -> None:
        self.node = node
        self.ring = node.on_ring.ring
        self.calendar = calendar or Calendar()
        self.scores = scores
        self._rule: Rule = node.on_ring.rule or _trust_the_nearest
        self.predecessors = frozenset(self.ring.behind(node.id, node.on_ring.reach))
        self.successors = self.ring.ahead(node.id, node.on_ring.reach)
        self.memory = Memory(node.on_ring.connectivity)
        self.memory.insert(Entry(INITIAL, -1, node.initial_model))  # line 4
        self.model = node.initial_model  # this node's own last model
        self.passed_on = node.initial_model  # what it sent in its last turn
        self.round = 1  # the round that comes next
        self.turned = 0  # the round of its last turn
        self.newest: dict[int, int] = {}  # sender -> latest turn of which a model was taken
        self.early: dict[int, Arrival] = {}  # sender -> a model from beyond this node's own turn
        self.served: dict[int, int] = {}  # returned node -> round in which it was last served
        self.rule_state: dict[str, Any] = {}
        first_step = self.ring.step(1, self.ring.order[0])
        self.watch = Watch(node.patience, first_step - 1, node.start)

    def run(self) -> Protocol:
        yield from self._begin()
        while self.round <= self.node.rounds:
            yield from self._take_turn(self.round)

    def _begin(self) -> Protocol:
        if self.node.state is not None:
            self._restore(self.node.state)
        if self.node.rejoin_round is not None:
            yield from self._rejoin(self.node.rejoin_round)

    def _take_turn(self, k: int) -> Protocol:
        """Lines 9–16 for this node in round k."""
        batches = self.node.draw(k)  # private, and drawn before the models arrive
        step = self.ring.step(k, self.node.id)
        if self.early:
            for waiting in list(self.early.values()):
                assert isinstance(waiting.body, Tensor)
                self._take_in(waiting, waiting.body, step)
        watch, score_on = self.watch, self._score_on(batches[0])
        while watch.step < step - 1:
            arrival = yield Receive(watch.deadline(step), score_on)
            if isinstance(arrival, Missing):
                break
            if isinstance(arrival.body, Tensor):
                self._take_in(arrival, arrival.body, step)  # line 16
            elif isinstance(arrival.body, Rejoin):  # whatever else a liar may send is for nobody
                yield from self._serve(arrival.sender)

        stored, state = self.memory, self.rule_state
        candidates, choice = yield from self._choose(stored, k, batches[0], self.model, state)
        self.rule_state = choice.state
        rate, key = self.node.rate(self.calendar.global_round(k)), partial(self.node.key, k)
        self.model = self.passed_on = yield Train(choice.model, batches, rate, key)  # line 11
        yield self._record(k, candidates.senders, choice.selected)
        now = yield Send(self._receivers(k), self.calendar.number(k), self.model)  # line 14
        watch.hear(step, now)
        self._end_turn(k, now)
        yield self._checkpoint()

    def _record(self, k: int, senders: tuple[int | None, ...], selected: Selection) -> Record:
        return Record(k, self.model, senders, selected)

    def _receivers(self, k: int) -> tuple[int, ...]:
        return self.successors

    def _end_turn(self, k: int, now: float) -> None:
        self.round, self.turned = k + 1, k

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(self.round, self._state_now())

    def _score_on(self, batch: Batch) -> Batch | None:
        """What models are to be scored on as they arrive."""
        return batch if self.scores and self.node.on_ring.score_on_arrival else None

    def _choose(
        self, memory: Memory, k: int, batch: Batch, own: Tensor, state: dict[str, Any]
    ) -> Generator[Request, Any, tuple[Candidates, Choice]]:
        """Line 10, eq. (3): one of the stored models, by the node's rule."""
        entries = memory.nearest_first()
        losses = yield from self._scored(memory, entries, k, batch)
        layers, lap = self.node.on_ring.layers, len(self.ring)
        candidates = Candidates(entries, losses, own, batch, state, layers, lap)
        return candidates, (yield from self._rule(candidates))

    def _take_in(self, arrival: Arrival, model: Tensor, my_step: int) -> None:
        """Store a model, unless it is one that an honest node must refuse.

        A sender counts once for each of its turns, whatever it sends; and a model that claims to
        come from a turn after mine waits until mine is over.
        """
        sender = arrival.sender
        ring_round = self.calendar.ring_round(arrival.round)
        if sender not in self.predecessors or ring_round is None:
            return
        step = self.ring.step(ring_round, sender)
        if step <= self.newest.get(sender, -1):
            return
        if step >= my_step:  # by then its losses will be those of another batch
            self.early[sender] = Arrival(sender, arrival.round, model, arrival.time)
            return
        if self.early:
            self.early.pop(sender, None)
        self.newest[sender] = step
        self.memory.insert(Entry(sender, step, model, arrival.losses, self.round))
        self.watch.hear(step, arrival.time)

    def _scored(
        self, memory: Memory, entries: list[Entry], k: int, batch: Batch
    ) -> Generator[Request, Any, list[Losses]]:
        """The losses of what is stored on this round's batch."""
        losses: list[Losses] = []
        for entry in entries if self.scores else ():
            promise = entry.losses
            if promise is None or entry.scored_in != k:
                # x⁰, a model that waited for the turn, or one whose sender has fallen silent since.
                promise = yield Score(entry.model, batch)
                memory.replace(Entry(entry.sender, entry.step, entry.model, promise, k))
            losses.append(promise)
        return losses

    def _serve(self, returned: int) -> Generator[Request, Any, None]:
        """Appendix C: send one's last model to a successor that has returned (once a round)."""
        if returned not in self.successors or self.served.get(returned) == self.round:
            return
        self.served[returned] = self.round
        if self.turned:
            yield Send((returned,), self.calendar.number(self.turned), self.passed_on)
            yield self._checkpoint()

    def _rejoin(self, first_round: int) -> Generator[Request, Any, None]:
        """Appendix C: announce one's return; the answers arrive like any other model."""
        self.round = first_round
        others = tuple(i for i in self.ring.order if i != self.node.id)
        now = yield Send(others, self.calendar.number(first_round), Rejoin())
        lap_before = self.ring.step(first_round - 1, self.ring.order[0])
        self.watch = Watch(self.node.patience, lap_before, now)
        yield self._checkpoint()

    def _state_now(self) -> Callable[[], dict[str, Any]]:
        """The state of this moment, made when it is asked for: copies now, packing later."""
        plain = {
            "round": self.round,
            "turned": self.turned,
            "model": self.model,
            "passed_on": self.passed_on,
            "rule": self.rule_state,
            "heard": [self.watch.step, self.watch.time],
        }
        newest, served, early = self.newest.copy(), self.served.copy(), list(self.early.values())
        entries = self.memory.entries
        return lambda: {
            **plain,
            "memory": pack(entries),
            "newest": newest,
            "served": served,
            "early": [[a.sender, a.round, a.body, a.time] for a in early],
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.round, self.turned = state["round"], state["turned"]
        self.model, self.passed_on = state["model"], state["passed_on"]
        self.memory = Memory(self.node.on_ring.connectivity)
        for entry in unpack(state["memory"]):
            self.memory.insert(entry)
        self.newest = {int(sender): step for sender, step in state["newest"].items()}
        self.early = {fields[0]: Arrival(*fields) for fields in state["early"]}
        self.served = {int(node): k for node, k in state["served"].items()}
        self.rule_state = state["rule"]
        self.watch.step, self.watch.time = state["heard"]
