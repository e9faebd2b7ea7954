"""Basil+ (Algorithm 3): rings in parallel, joined by robust averaging.

A global round has three stages.  *Ring*: each group trains for τ rounds as in Basil.
*Aggregation*: the last S nodes of a group choose one of the averages that the last S nodes of the
group before them sent, mix their own model into it and send it on; those of the last group send to
those of the first.  *Multicast*: these choose once more and send to the first S nodes of every
group, which choose, and start the next round from there.

Each stage starts for a node as soon as what it needs is there, not when all nodes are done with the
one before: the last nodes of the first group send when their own turn is over, and a ring starts
when its first node has chosen.
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from basil.learning.pool import Batch
from basil.learning.promises import Selection, tensor_of
from basil.protocol.basil import RingMember
from basil.protocol.calendar import AGGREGATION, MULTICAST, RING, Calendar
from basil.protocol.memory import INITIAL, Entry, Memory, pack, unpack
from basil.protocol.node import Node
from basil.protocol.requests import (
    Arrival,
    Checkpoint,
    Combine,
    Missing,
    Protocol,
    Receive,
    Record,
    Rejoin,
    Request,
    Score,
    Send,
)
from basil.protocol.turns import Watch
from basil.topology import Grouping

JOINING = "joining"  # a returned node that waits for the multicast of the round before


def basil_plus(node: Node) -> Protocol:
    """Rings in parallel, each as in Basil, joined by averages that are chosen by loss (Alg. 3).

    The rings, τ and the depth of the aggregation are those of [ring]: groups, group_rounds, fanout.
    With one group this is Basil.
    """
    yield from GroupMember(node).run()


def r_plain_plus(node: Node) -> Protocol:
    """Rings in parallel without a defence: the groups' last models are averaged (§VI-B).

    The last node of each ring passes the average on, and the first one goes on from it; everybody
    is trusted.  The same as Basil+ with S = 1 and nothing to compare.
    """
    dropouts = node.on_ring.reach - node.on_ring.connectivity
    alone = replace(
        node, on_ring=replace(node.on_ring, connectivity=1, reach=1 + dropouts, rule=None)
    )
    yield from GroupMember(alone, scores=False).run()


class GroupMember(RingMember):
    """One node's part in a ring of several.  Its attributes are all that it remembers."""

    def __init__(self, node: Node, scores: bool = True) -> None:
        self.grouping = grouping = node.on_rings.grouping or Grouping(node.on_ring.ring.order, 1)
        self.group = group = grouping.group_of[node.id]
        self.width = node.on_ring.reach  # of S_g and U_g: S + d (Appendix C)
        ring = grouping.rings[group]
        most = len(ring) - 1
        S, reach = min(node.on_ring.connectivity, most), min(node.on_ring.reach, most)
        place = replace(node, on_ring=replace(node.on_ring, ring=ring, connectivity=S, reach=reach))
        super().__init__(place, scores, Calendar(node.on_rings.laps, joined=len(grouping) > 1))
        self.passes_on = node.id in self._last(group)  # is in S_g
        self.starts = node.id in self._first(group)  # is in U_g
        self.route = grouping.routes[group]
        self.sources = self._sources()
        self.by_outcome = node.on_rings.by_outcome and scores
        self.records: list[Record] = []  # of choices since the last checkpoint
        self.global_round = 1
        self.stage = RING
        self.now = self.turned_at = node.start  # the latest time it knows of; that of its last turn
        self.last_number = 0  # of what it sent last
        self.scored_in = 0  # the ring's round whose batch is scored on, while no turn is due
        # Models of the other two stages, which may be here before this node is: by number, sender.
        self.heard: dict[tuple[int, int], Entry] = {}
        self.silent: set[tuple[str, int]] = set()  # who of them sent nothing, the last time

    def run(self) -> Protocol:
        yield from self._begin()
        while self.global_round <= self.node.rounds:
            yield from self._take_global_round(self.global_round)

    def _take_global_round(self, k: int) -> Protocol:
        """Stages 2 to 4 for this node; one that has been restarted goes on where it was."""
        if self.stage == JOINING:
            self.now = self.turned_at = self.watch.time
            yield from self._start_from(k - 1)
            self.stage = RING
        while self.stage == RING and self.global_round == k:
            yield from self._take_turn(self.round)
        if self.stage == AGGREGATION:
            if self.passes_on:
                yield from self._aggregate(k)
            else:
                self.stage = MULTICAST
                yield self._checkpoint()
        if self.stage == MULTICAST:
            if self.passes_on and self.group == 0:
                yield from self._hand_round(k)
            yield from self._start_from(k)
            yield from self._report()
            yield Record(k, self.model)
            self.global_round, self.stage = k + 1, RING
            yield self._checkpoint()

    # -- Stage 2: the ring -----------------------------------------------------------------------

    def _record(self, k: int, senders: tuple[int | None, ...], selected: Selection) -> Record:
        over = k == self.calendar.last_lap(self.global_round) and not self.calendar.joined
        return Record(self.global_round, self.model, senders, selected, last=over)

    def _receivers(self, k: int) -> tuple[int, ...]:
        """In the last lap those whose turn is still to come: the next starts from elsewhere."""
        if not self.calendar.joined or k < self.calendar.last_lap(self.global_round):
            return self.successors
        place = self.ring.position
        return tuple(i for i in self.successors if place[i] > place[self.node.id])

    def _end_turn(self, k: int, now: float) -> None:
        super()._end_turn(k, now)
        self.now = self.turned_at = now
        self.last_number = self.calendar.number(k)
        if k == self.calendar.last_lap(self.global_round):
            if self.calendar.joined:
                self.stage = AGGREGATION
            else:
                self.global_round += 1

    # -- Stage 3: robust circular aggregation ----------------------------------------------------

    def _aggregate(self, k: int) -> Protocol:
        """S_g: z ← (x + g z̄) / (g + 1), eq. (11), with z̄ chosen by eq. (13); pass it on."""
        lap, average = self.calendar.last_lap(k), self.model
        for hop in self.route.hops:
            senders, shares = self._last(hop.source), (hop.own, hop.theirs)
            chosen = yield from self._chosen_of(
                k, AGGREGATION, senders, self._due(hop.depth), lap, average, shares
            )
            average = yield Combine(partial(_mixed, average, chosen, *shares), averages=1)
        self.stage = MULTICAST
        yield from self._send(self._last(self.route.target), self.calendar.aggregation(k), average)

    # -- Stage 4: robust multicast ---------------------------------------------------------------

    def _hand_round(self, k: int) -> Protocol:
        """S_1: choose one of the averages over all groups and send it to every U_g."""
        me, number, lap = self.node.id, self.calendar.multicast(k), self.calendar.last_lap(k)
        if (number, me) in self.heard:  # sent before this node was restarted
            return
        senders = self._last(len(self.grouping) - 1)
        until = self._due(self.grouping.depth + 1)
        chosen = yield from self._chosen_of(k, AGGREGATION, senders, until, lap, self.model)
        model = tensor_of(chosen)
        self.heard[number, me] = Entry(me, self._order(me), model)
        receivers = (i for g in range(len(self.grouping)) for i in self._first(g) if i != me)
        yield from self._send(tuple(receivers), number, model)

    def _start_from(self, k: int) -> Protocol:
        """U_g: choose one of what S_1 sent in global round k.  The others start from their own."""
        since = self._due(self.grouping.depth + 2)
        if self.starts:
            lap = self.calendar.last_lap(k) + 1  # whose batch the next update will be on, too
            chosen = yield from self._chosen_of(k, MULTICAST, self._last(0), since, lap, self.model)
            self.model, since = tensor_of(chosen), self.now
        # Basil begins again, with x^(i,g) in the place of x⁰.
        self.memory = Memory(self.node.on_ring.connectivity)
        self.memory.insert(Entry(INITIAL, -1, self.model))
        first_step = self.ring.step(self.round, self.ring.order[0])
        self.watch = Watch(self.node.patience, first_step - 1, since)
        rounds = {i: self.calendar.ring_round(a.round) for i, a in self.early.items()}
        self.early = {i: a for i, a in self.early.items() if (rounds[i] or 0) >= self.round}
        self.heard = {at: e for at, e in self.heard.items() if at[0] > self.calendar.multicast(k)}

    # -- between groups --------------------------------------------------------------------------

    def _last(self, group: int) -> tuple[int, ...]:
        return self.grouping.last(group, self.width)

    def _first(self, group: int) -> tuple[int, ...]:
        return self.grouping.first(group, self.width)

    def _sources(self) -> frozenset[tuple[str, int]]:
        """From which groups models may come to this node, and in which stage."""
        passed = {hop.source for hop in self.route.hops} if self.passes_on else set()
        if self.passes_on and self.group == 0:
            passed.add(len(self.grouping) - 1)
        handed = {(MULTICAST, 0)} if self.starts else set()
        return frozenset({(AGGREGATION, g) for g in passed} | handed)

    def _due(self, hops: int) -> float:
        """When to go on without what has not come, so many hops after the last turns.

        Other rings may be later than one's own by as much as their silent nodes have cost them: at
        most a patience for each of their turns; and one's own turn is not the last of its lap.
        """
        turns = (self.calendar.laps + 1) * self.grouping.largest
        return self.turned_at + turns * self.node.patience + hops * self.node.on_rings.hop_patience

    def _chosen_of(
        self,
        k: int,
        stage: str,
        senders: tuple[int, ...],
        until: float,
        lap: int,
        own: Tensor,
        shares: tuple[int, int] = (1, 1),
    ) -> Generator[Request, Any, Tensor | Selection]:
        """A_Basil(L_g) on the batch of a round: one of what these sent, or one's own model.

        By outcome each is judged by the loss of its average with one's own model, in these shares:
        what cannot be averaged is seen there, and only there.
        """
        batch = self.node.draw(lap)[0]
        number = self._number(k, stage)
        # Silence costs one deadline, not one in every round; what comes in time counts though.  If
        # nobody spoke the last time, all are waited for: running ahead alone would help nobody.
        awaited = [i for i in senders if (stage, i) not in self.silent] or senders
        self.scored_in = lap
        while any((number, i) not in self.heard for i in awaited):
            arrival = yield Receive(until, None if self.by_outcome else self._score_on(batch))
            self.now = max(self.now, arrival.time)
            if isinstance(arrival, Missing):
                break
            if isinstance(arrival.body, Tensor):  # one of this ring waits for the next lap
                self._take_in(arrival, arrival.body, my_step=0)
            elif isinstance(arrival.body, Rejoin):
                yield from self._serve(arrival.sender)
        self.scored_in = 0
        here = [i for i in senders if (number, i) in self.heard]
        self.silent |= {(stage, i) for i in senders if i not in here}
        if not here:
            return own
        received = Memory(len(here))
        for i in here:
            received.insert(self.heard[number, i])
        models = [entry.model for entry in received.nearest_first()]
        if self.by_outcome:
            yield from self._average(received, own, shares, lap, batch)
        candidates, choice = yield from self._choose(received, lap, batch, own, {})
        record = Record(k, self.model, candidates.senders, choice.selected, stage, last=False)
        self.records.append(record)
        return choice.selected.among([*models, own]) if self.by_outcome else choice.model

    def _average(
        self, received: Memory, own: Tensor, shares: tuple[int, int], lap: int, batch: Batch
    ) -> Protocol:
        """Put the averages in the place of what goes into them."""
        for entry in received.nearest_first():
            average = yield Combine(partial(_mixed, own, entry.model, *shares), averages=1)
            losses = yield Score(average, batch)
            received.replace(Entry(entry.sender, entry.step, average, losses, lap))

    def _number(self, k: int, stage: str) -> int:
        return self.calendar.aggregation(k) if stage == AGGREGATION else self.calendar.multicast(k)

    def _take_in(self, arrival: Arrival, model: Tensor, my_step: int) -> None:
        """Keep a model of another stage, once, if its sender may send one; the rest is Basil's."""
        k, stage = self.calendar.stage(arrival.round)
        if stage == RING:
            super()._take_in(arrival, model, my_step)
            return
        sender, at = arrival.sender, (arrival.round, arrival.sender)
        source = self.grouping.group_of.get(sender, -1)
        if (stage, source) not in self.sources or sender not in self._last(source):
            return
        self.now = max(self.now, arrival.time)
        self.silent.discard((stage, sender))
        first = self.global_round - (self.stage == JOINING)
        if first <= k <= self.global_round + 1 and at not in self.heard:
            lap = self.scored_in or self.round
            self.heard[at] = Entry(sender, self._order(sender), model, arrival.losses, lap)

    def _order(self, sender: int) -> int:
        """The later its turn, the nearer."""
        return self.grouping.ring_of(sender).position[sender]

    def _report(self) -> Protocol:
        """Choices are recorded at the moment of a checkpoint, or a resumed run repeats them."""
        records, self.records = self.records, []
        yield from records

    def _send(self, to: tuple[int, ...], number: int, model: Tensor) -> Protocol:
        yield from self._report()
        self.last_number = number
        self.now = yield Send(to, number, model)
        yield self._checkpoint()

    # -- dropouts, checkpoints -------------------------------------------------------------------

    def _serve(self, returned: int) -> Protocol:
        """Not once a later number has been used: numbers only ever increase."""
        if self.last_number == self.calendar.number(self.turned):
            yield from super()._serve(returned)

    def _rejoin(self, k: int) -> Protocol:
        """In global round k; the first nodes of a ring still hear the multicast before it."""
        self.global_round = k
        self.stage = JOINING if self.calendar.joined and k > 1 else RING
        self.heard.clear()
        first = self.calendar.last_lap(k - 1) + 1
        self.last_number = self.calendar.number(first)
        yield from super()._rejoin(first)

    def _checkpoint(self) -> Checkpoint:
        stage = RING if self.stage == JOINING else self.stage
        return Checkpoint(self.global_round, self._state_now(), stage)

    def _state_now(self) -> Callable[[], dict[str, Any]]:
        ring = super()._state_now()
        mine = {
            "global_round": self.global_round,
            "stage": self.stage,
            "times": [self.now, self.turned_at],
            "last_number": self.last_number,
            "silent": sorted(self.silent),
        }
        heard = self.heard.copy()
        return lambda: {
            **ring(),
            **mine,
            "between": [[number, *pack([entry])] for (number, _), entry in heard.items()],
        }

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self.global_round, self.stage = state["global_round"], state["stage"]
        self.now, self.turned_at = state["times"]
        self.last_number = state["last_number"]
        self.silent = {(stage, node) for stage, node in state["silent"]}
        entries = [(number, unpack([packed])[0]) for number, packed in state["between"]]
        self.heard = {(number, entry.sender): entry for number, entry in entries}


def _mixed(own: Tensor, chosen: Tensor | Selection, ours: int, theirs: int) -> Tensor:
    """The average over all groups that are in one or the other."""
    return (ours * own + theirs * tensor_of(chosen)) / (ours + theirs)
