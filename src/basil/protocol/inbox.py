"""What surrounds Algorithm 1 at one node: models that come early, late or never; absence; restarts.

The inbox takes in what arrives while its node waits, and holds all that the node remembers.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from basil.learning.pool import Batch
from basil.learning.promises import Losses, Selection
from basil.protocol.descent import descending, stepping
from basil.protocol.memory import INITIAL, Entry, Memory
from basil.protocol.node import Node
from basil.protocol.numbering import AGGREGATION, MULTICAST, RING, Numbering
from basil.protocol.requests import (
    Arrival,
    Checkpoint,
    Combine,
    Fetch,
    Missing,
    Protocol,
    Receive,
    Record,
    Rejoin,
    Request,
    Score,
    Send,
)
from basil.protocol.rules import Candidates, Choice, Rule, RuleGenerator
from basil.protocol.sketch import Sketch
from basil.protocol.state import kept, restored
from basil.protocol.turn_deadline import TurnDeadline

JOINING = "joining"  # Basil+: a returned node that waits for the multicast of the round before


@dataclass(eq=False)
class State:
    """All that a node on a ring remembers; rounds are those of its ring.  A checkpoint holds it."""

    stored: Memory  # StoredModels
    watch: TurnDeadline
    model: Tensor  # this node's own last model
    passed_on: Tensor  # what it sent in its last turn
    now: float  # the latest time it knows of
    turned_at: float  # when its last turn ended
    round: int = 1  # the round that comes next
    turned: int = 0  # the round of its last turn
    number: int = 0  # of the model that it sent last
    stage: str = RING
    rule: dict[str, Any] = field(default_factory=dict)  # what the rule remembers
    optimizer: dict[str, Any] = field(default_factory=dict)  # what the optimiser remembers
    newest: dict[int, int] = field(default_factory=dict)  # sender -> latest turn that was taken
    early: dict[int, Arrival] = field(default_factory=dict)  # sender -> from beyond one's own turn
    served: dict[int, int] = field(default_factory=dict)  # returned node -> when last served
    # Basil+: models of the other two stages by number and sender; who sent none the last time.
    between: dict[tuple[int, int], Entry] = field(default_factory=dict)
    silent: set[tuple[str, int]] = field(default_factory=set)
    hops: int = 0  # of the aggregation, that are over
    average: Tensor | None = None  # after these


class Inbox:
    """One node's mail on its ring.

    Where the ring is one of several, `numbering` says how their rounds are numbered between nodes,
    and `elsewhere` takes in the models of other stages.  With `sketches` models are only announced,
    and those that are near are fetched.
    """

    def __init__(
        self, node: Node, numbering: Numbering | None = None, sketches: Sketch | None = None
    ) -> None:
        self.node, place = node, node.on_ring
        self.sketches = sketches
        self.ring = place.ring
        self.numbering = numbering or Numbering()
        self.rule: Rule = place.rule or _nearest
        self.scores = place.rule is not None
        self.improve = descending if place.descent and self.scores else stepping
        self.extrapolates = place.extrapolate > 0 and self.scores
        # Those of its own last model too, while it waits: not in its turn.
        self.scores_own = getattr(getattr(place.rule, "func", place.rule), "scores_own", False)
        self.own_losses: Losses | None = None  # for the turn that is waited for
        self.predecessors = frozenset(self.ring.behind(node.id, place.reach))
        self.successors = self.ring.ahead(node.id, place.reach)
        self.elsewhere: Callable[[Arrival, Tensor], None] = lambda arrival, model: None
        self.records: list[Record] = []  # of choices between groups since the last checkpoint
        x0, start = node.initial_model, node.start
        if node.state is not None:
            self.state = restored(State, node.state)
        else:
            self.state = State(self.memory(x0), self.watch(1, start), x0, x0, start, start)

    def memory(self, first: Tensor) -> Memory:
        """Line 4: a queue of S models that holds the one to start from."""
        stored = Memory(self.node.on_ring.connectivity)
        stored.insert(Entry(INITIAL, -1, first))
        return stored

    def watch(self, k: int, since: float) -> TurnDeadline:
        """Round k of the ring may begin."""
        first_step = self.ring.step(k, self.ring.order[0])
        return TurnDeadline(self.node.patience, first_step - 1, since)

    @property
    def global_round(self) -> int:
        """Of the rounds of several rings; on one ring simply the round that comes next."""
        laps_over = self.state.stage in (AGGREGATION, MULTICAST)
        return self.numbering.global_round(self.state.round) - laps_over

    # -- a turn ----------------------------------------------------------------------------------

    def wait_for_turn(self, k: int, batch: Batch) -> Protocol:
        """Take in models until the nearest predecessor's is here, or its deadline has passed."""
        state, step = self.state, self.ring.step(k, self.node.id)
        if self.scores_own:
            self.own_losses = yield Score(state.model, batch)
        for waiting in list(state.early.values()):
            assert isinstance(waiting.body, Tensor)
            self.take_in(waiting, waiting.body, step)
        watch, score_on = state.watch, self.score_on(batch)
        while watch.step < step - 1:
            if not (yield from self.receive(watch.deadline(step), score_on, step)):
                break

    def select(
        self, stored: Memory, k: int, batch: Batch, own: Tensor, remembered: dict[str, Any]
    ) -> Generator[Request, Any, tuple[Candidates, Choice]]:
        """A_Basil, eq. (3): one of the stored models, by the node's rule."""
        entries, losses = stored.nearest_first(), list[Losses]()
        for entry in entries if self.scores else ():
            promise = entry.losses
            if promise is None or entry.scored_in != k:
                # x⁰, a model that waited for the turn, or one whose sender has fallen silent since.
                promise = yield Score(entry.model, batch)
                stored.replace(Entry(entry.sender, entry.step, entry.model, promise, k))
            losses.append(promise)
        mine, self.own_losses = self.own_losses, None
        candidates = Candidates(entries, losses, own, batch, remembered, mine)
        return candidates, (yield from self.rule(candidates))

    def send(self, to: tuple[int, ...], number: int, model: Tensor) -> Send:
        return Send(to, number, model, announced=self.sketches.size if self.sketches else 0)

    def receivers(self, k: int) -> tuple[int, ...]:
        """The next S; in the last lap those whose turn is to come: the next starts elsewhere."""
        if not (self.numbering.joined and self.numbering.ends_laps(k)):
            return self.successors
        place = self.ring.position
        return tuple(i for i in self.successors if place[i] > place[self.node.id])

    def end_turn(self, k: int, now: float) -> Checkpoint:
        """A model has been sent in round k: remember that."""
        state = self.state
        state.watch.hear(self.ring.step(k, self.node.id), now)
        state.round, state.turned, state.number = k + 1, k, self.numbering.number(k)
        state.now = state.turned_at = now
        if self.numbering.joined and self.numbering.ends_laps(k):
            state.stage = AGGREGATION
        return self.checkpoint()

    def report(self) -> Protocol:
        """Choices are recorded at the moment of a checkpoint, or a resumed run repeats them."""
        records, self.records = self.records, []
        yield from records

    def checkpoint(self) -> Checkpoint:
        stage = RING if self.state.stage == JOINING else self.state.stage
        return Checkpoint(self.global_round, kept(self.state), stage)

    # -- what arrives ----------------------------------------------------------------------------

    def score_on(self, batch: Batch) -> Batch | None:
        """What models are to be scored on as they arrive."""
        at_once = self.scores and self.node.on_ring.score_on_arrival and not self.sketches
        return batch if at_once else None

    def receive(
        self, until: float, score_on: Batch | None, step: int
    ) -> Generator[Request, Any, bool]:
        """Take in what comes next; False once the time is over.  `step`: the turn waited for."""
        arrival = yield Receive(until, score_on)
        if arrival.time > self.state.now:
            self.state.now = arrival.time
        if isinstance(arrival, Missing):
            return False
        if isinstance(arrival.body, Tensor):
            fetched = yield from self._fetched(arrival.body)
            self.take_in(arrival, arrival.body, step, fetched)
        elif isinstance(arrival.body, Rejoin):  # whatever else may be sent is for nobody
            yield from self._serve(arrival.sender)
        return True

    def _fetched(self, model: Tensor) -> Generator[Request, Any, bool]:
        """False: it was announced, and is too far away to be of use."""
        if self.sketches is None:
            return True
        compared = partial(self.sketches.compared, self.state.model, model[None], self.global_round)
        apart, near = yield Combine(compared, distances=1)
        if not apart <= near:
            return False
        yield Fetch(1, len(model))
        return True

    def take_in(self, arrival: Arrival, model: Tensor, my_step: int, fetched: bool = True) -> None:
        """Line 16: store a model, unless it is one that an honest node must refuse.

        A sender counts once for each of its turns, whatever it sends; and a model that claims to
        come from a turn after mine waits until mine is over.  What was not fetched is a sign of
        life, and nothing more.
        """
        state, sender = self.state, arrival.sender
        ring_round = self.numbering.ring_round(arrival.round)
        if ring_round is None:
            self.elsewhere(arrival, model)
            return
        if sender not in self.predecessors:
            return
        step = self.ring.step(ring_round, sender)
        if step <= state.newest.get(sender, -1):
            return
        if step >= my_step:  # by then its losses will be those of another batch
            if fetched:
                state.early[sender] = Arrival(sender, arrival.round, model, arrival.time)
            return
        state.early.pop(sender, None)
        state.newest[sender] = step
        if fetched:
            state.stored.insert(Entry(sender, step, model, arrival.losses, state.round))
        state.watch.hear(step, arrival.time)

    # -- absence (Appendix C) --------------------------------------------------------------------

    def rejoin(self, first_round: int) -> Protocol:
        """Announce one's return; the answers arrive like any other model."""
        state = self.state
        state.round = first_round
        others = tuple(i for i in self.ring.order if i != self.node.id)
        now = yield Send(others, self.numbering.number(first_round), Rejoin())
        lap_before = self.ring.step(first_round - 1, self.ring.order[0])
        state.watch = TurnDeadline(self.node.patience, lap_before, now)
        state.now = state.turned_at = now
        yield self.checkpoint()

    def _serve(self, returned: int) -> Protocol:
        """Send one's last model to a successor that has returned (once a round).

        Not once a later number has been used: numbers only ever increase.
        """
        state = self.state
        if returned not in self.successors or state.served.get(returned) == state.round:
            return
        number = self.numbering.number(state.turned)
        if state.turned and state.number == number:
            state.served[returned] = state.round
            yield from self.report()
            yield self.send((returned,), number, state.passed_on)
            yield self.checkpoint()


def _nearest(candidates: Candidates) -> RuleGenerator:
    yield from ()
    nearest = Selection(candidates.models, 0)
    return Choice(nearest, nearest)
