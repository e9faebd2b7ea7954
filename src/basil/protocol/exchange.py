"""What surrounds Algorithm 3 at one node: models between groups, their senders and deadlines."""

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor

from basil.learning.pool import Batch
from basil.learning.promises import Selection, tensor_of
from basil.protocol.inbox import JOINING, Inbox
from basil.protocol.memory import Entry, Memory
from basil.protocol.node import Node
from basil.protocol.numbering import AGGREGATION, MULTICAST, RING, Numbering
from basil.protocol.requests import Arrival, Combine, Protocol, Record, Request, Score, Send
from basil.topology import Grouping


@dataclass(frozen=True)
class Call:
    """Models that are due: in which stage of which global round, from whom, until when."""

    round: int
    stage: str
    senders: tuple[int, ...]
    number: int
    until: float


class Exchange:
    """One node among several rings: its inbox, and what comes and goes between the groups."""

    def __init__(self, node: Node) -> None:
        place, groups = node.on_ring, node.on_rings
        self.grouping = grouping = groups.grouping or Grouping(place.ring.order, 1)
        self.group = group = grouping.group_of[node.id]
        self.width = place.reach  # of S_g and U_g: S, and d more where d may be away (Appendix C)
        ring = grouping.rings[group]
        S, reach = (min(count, len(ring) - 1) for count in (place.connectivity, place.reach))
        on_ring = replace(place, ring=ring, connectivity=S, reach=reach)
        self.node = replace(node, on_ring=on_ring)
        self.numbering = Numbering(groups.laps, joined=len(grouping) > 1)
        self.inbox = Inbox(self.node, self.numbering)
        self.inbox.elsewhere = self._take_in
        self.passes_on = node.id in self.last(group)  # is in S_g
        self.hands_round = self.passes_on and group == 0  # is in S_1
        self.starts = node.id in self.first(group)  # is in U_g
        self.route = grouping.routes[group]
        self.sources = self._sources()
        self.by_outcome = groups.by_outcome and place.rule is not None
        self.scored_in = 0  # the ring's round whose batch is scored on, while no turn is due

    def last(self, group: int) -> tuple[int, ...]:
        """S_g"""
        return self.grouping.last(group, self.width)

    def first(self, group: int) -> tuple[int, ...]:
        """U_g"""
        return self.grouping.first(group, self.width)

    def _sources(self) -> frozenset[tuple[str, int]]:
        """From which groups models may come to this node, and in which stage."""
        passed = {hop.source for hop in self.route.hops} if self.passes_on else set()
        if self.hands_round:
            passed.add(len(self.grouping) - 1)
        handed = {(MULTICAST, 0)} if self.starts else set()
        return frozenset({(AGGREGATION, g) for g in passed} | handed)

    # -- receive and choose ----------------------------------------------------------------------

    def call(self, k: int, stage: str, group: int, hops: int) -> Call:
        """What S_g of a group sends, and when to go on without it, so many hops after the turns.

        Other rings may be later than one's own by as much as their silent nodes have cost them: at
        most a patience for each of their turns; and one's own turn is not the last of its lap.
        """
        numbering, node = self.numbering, self.node
        turns = (numbering.laps + 1) * self.grouping.largest
        wait = turns * node.patience + hops * node.on_rings.hop_patience
        number = numbering.aggregation(k) if stage == AGGREGATION else numbering.multicast(k)
        return Call(k, stage, self.last(group), number, self.inbox.state.turned_at + wait)

    def chosen_of(
        self, call: Call, lap: int, own: Tensor, shares: tuple[int, int] = (1, 1)
    ) -> Generator[Request, Any, Tensor | Selection]:
        """A_Basil(L_g) on the batch of a round: one of what these sent, or one's own model.

        By outcome each is judged by the loss of its average with one's own model, in these shares:
        what cannot be averaged is seen there, and only there.
        """
        batch = self.node.judge(lap, self.node.draw(lap))
        self.scored_in = lap
        score_on = None if self.by_outcome else self.inbox.score_on(batch)
        here = yield from self._gather(call, score_on)
        self.scored_in = 0
        if not here:
            return own
        received = Memory(len(here))
        for entry in here:
            received.insert(entry)
        models = [entry.model for entry in received.nearest_first()]
        if self.by_outcome:
            for entry in received.nearest_first():
                average = yield Combine(partial(mixed, own, entry.model, *shares), averages=1)
                losses = yield Score(average, batch)
                received.replace(Entry(entry.sender, entry.step, average, losses, lap))
        candidates, choice = yield from self.inbox.select(received, lap, batch, own, {})
        chosen = candidates.senders, choice.selected
        self.inbox.records.append(
            Record(call.round, self.inbox.state.model, *chosen, call.stage, last=False)
        )
        return choice.selected.among([*models, own]) if self.by_outcome else choice.model

    def _gather(self, call: Call, score_on: Batch | None) -> Generator[Request, Any, list[Entry]]:
        """What has come by the deadline.

        Silence costs one deadline, not one in every round; what comes in time counts though.  If
        nobody spoke the last time, all are waited for: running ahead alone would help nobody.
        """
        state, number = self.inbox.state, call.number
        awaited = [i for i in call.senders if (call.stage, i) not in state.silent] or call.senders
        while any((number, i) not in state.between for i in awaited):
            # A model of one's own ring waits for the next lap: no turn is due.
            if not (yield from self.inbox.receive(call.until, score_on, step=0)):
                break
        here = [i for i in call.senders if (number, i) in state.between]
        state.silent |= {(call.stage, i) for i in call.senders if i not in here}
        return [state.between[number, i] for i in here]

    def _take_in(self, arrival: Arrival, model: Tensor) -> None:
        """Keep a model of another stage, once, if its sender may send one."""
        state, sender, at = self.inbox.state, arrival.sender, (arrival.round, arrival.sender)
        k, stage = self.numbering.stage(arrival.round)
        source = self.grouping.group_of.get(sender, -1)
        if (stage, source) not in self.sources or sender not in self.last(source):
            return
        state.silent.discard((stage, sender))
        now = self.inbox.global_round
        if now - (state.stage == JOINING) <= k <= now + 1 and at not in state.between:
            lap = self.scored_in or state.round
            state.between[at] = Entry(sender, self._order(sender), model, arrival.losses, lap)

    def _order(self, sender: int) -> int:
        """The later its turn, the nearer."""
        return self.grouping.ring_of(sender).position[sender]

    # -- send ------------------------------------------------------------------------------------

    def send(self, to: tuple[int, ...], number: int, model: Tensor) -> Protocol:
        yield from self.inbox.report()
        state = self.inbox.state
        state.number = number
        state.now = yield Send(to, number, model)
        yield self.inbox.checkpoint()

    def send_to_all(self, k: int, model: Tensor) -> Protocol:
        """To the first nodes of every group, of which this node may be one."""
        me, number = self.node.id, self.numbering.multicast(k)
        self.inbox.state.between[number, me] = Entry(me, self._order(me), model)
        receivers = (i for g in range(len(self.grouping)) for i in self.first(g) if i != me)
        yield from self.send(tuple(receivers), number, model)

    def has_handed_round(self, k: int) -> bool:
        """Before this node was restarted."""
        return (self.numbering.multicast(k), self.node.id) in self.inbox.state.between

    # -- from round to round ---------------------------------------------------------------------

    def begin_laps(self, k: int, since: float) -> None:
        """After global round k Basil begins again, with x^(i,g) in the place of x⁰."""
        state, numbering = self.inbox.state, self.numbering
        state.stored = self.inbox.memory(state.model)
        state.watch = self.inbox.watch(state.round, since)
        rounds = {i: numbering.ring_round(a.round) or 0 for i, a in state.early.items()}
        state.early = {i: a for i, a in state.early.items() if rounds[i] >= state.round}
        over = numbering.multicast(k)
        state.between = {at: e for at, e in state.between.items() if at[0] > over}

    def rejoin(self, k: int) -> Protocol:
        """In global round k; the first nodes of a ring still hear the multicast before it."""
        state, first = self.inbox.state, self.numbering.last_lap(k - 1) + 1
        state.stage = JOINING if self.numbering.joined and k > 1 else RING
        state.between.clear()
        state.hops, state.average = 0, None
        state.number = self.numbering.number(first)
        yield from self.inbox.rejoin(first)


def mixed(own: Tensor, chosen: Tensor | Selection, ours: int, theirs: int) -> Tensor:
    """The average over all groups that are in one or the other."""
    return (ours * own + theirs * tensor_of(chosen)) / (ours + theirs)
