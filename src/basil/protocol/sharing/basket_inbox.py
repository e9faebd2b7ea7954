"""What surrounds Algorithm 2 at one node: others that do not keep to it, which it leaves open.

- Silence.  Every pass has a deadline on a timetable that each node computes for itself.  Whoever
  waited in vain tells all others, and from then on the basket goes round the absent node.  The node
  before that one still has the basket and sends it once more; if that, too, comes late, its content
  is lost, and its owners notice when their batch does not come back.
- Too much.  A basket that holds more than the other n − 1 nodes can have put in is refused, and its
  sender counts as absent: so a node that adds twice, or does not take out, is out.
- Too little, or samples that are none: noted, and the cycle goes on with the rest.

A node is believed only about its own predecessor, and about a round only once its time for that is
over: a Byzantine one can exclude one in each round that comes to an end, and nobody before.
"""

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from basil.protocol.requests import Absent, Arrival, Receive, Request, Send
from basil.protocol.sharing.basket import Basket
from basil.protocol.sharing.timetable import Timetable

Part: TypeAlias = Generator[Request, Any, None]


@dataclass(frozen=True, eq=False)
class Sharer:
    """One node, as its own part in the sharing sees it.

    Sensitive samples are not among `samples`: what is not handed over cannot leave.
    """

    id: int
    table: Timetable
    samples: Basket  # the non-sensitive ones
    dummies: Callable[[int], Basket]  # so many public samples, drawn at random
    is_sample: Callable[[Basket], NDArray[np.bool_]]  # for each row: can it be one?
    is_dummy: Callable[[Basket], NDArray[np.bool_]]  # for each row: known to be a dummy?
    stream: np.random.Generator  # of selection and shuffles; on a real network the system's entropy
    start: float = 0.0


@dataclass(frozen=True)
class Incident:
    """Something that did not go as it should: what, in which round, concerning whom, how many."""

    round: int
    what: str
    about: int
    samples: int


class BasketInbox:
    """The baskets that come to one node, and who is known to be absent."""

    def __init__(self, node: Sharer) -> None:
        self.node, self.table = node, node.table
        self.group = self.table.group_of(node.id)
        self.ring = self.table.groups[self.group]
        self.position = self.ring.index(node.id)
        self.empty = node.samples.only(slice(0, 0))
        self.absent: set[int] = set()
        self.here: dict[int, Basket] = {}  # round -> the predecessor's basket
        self.groups: dict[tuple[int, int], Basket] = {}  # (group, sender) -> what it sent
        self.now = node.start
        self.last: Send | None = None  # the last basket passed on …
        self.again: Send | None = None  # … which is to be sent once more
        self.early: list[tuple[float, Arrival]] = []  # reports, and when they can be believed
        self.incidents: list[Incident] = []

    def note(self, r: int, what: str, about: int, samples: int) -> None:
        self.incidents.append(Incident(r, what, about, samples))

    # -- within the group ------------------------------------------------------------------------

    def received(self, r: int, own: Basket) -> Generator[Request, Any, Basket | None]:
        """What others have put into the predecessor's basket of this round; None without one."""
        basket = yield from self._basket(r)
        while basket is not None:
            others = basket.without(own)
            lost = len(own) - (len(basket) - len(others))
            if lost:
                self.note(r, "own samples did not come back", self.node.id, lost)
            most = self.table.most_from_others(len(self.ring), self.position, r)
            sender = self.before(self.node.id, r)
            if len(others) <= most or sender is None:
                if len(others) < most:
                    about = -1 if sender is None else sender
                    self.note(r, "too few samples", about, most - len(others))
                return others
            yield from self._accuse(sender, r, "too many samples", len(others) - most)
            basket = yield from self._once_more(r)
        return None

    def _basket(self, r: int) -> Generator[Request, Any, Basket | None]:
        until = self.node.start + self.table.deadline(len(self.ring), self.position, r)
        while True:
            sender = self.before(self.node.id, r)
            if r in self.here:
                return self.here.pop(r)
            if sender is None or self.node.id in self.absent:
                return None
            if not (yield from self.listen(until)):
                break
        yield from self._accuse(sender, r, "silent", 0)
        return (yield from self._once_more(r))

    def _once_more(self, r: int) -> Generator[Request, Any, Basket | None]:
        """After an accusation: the same basket from the node before, which still has it."""
        until = self.node.start + self.table.last_call(len(self.ring), self.position, r)
        while self.before(self.node.id, r) is not None and r not in self.here:
            if not (yield from self.listen(until)):
                break
        return self.here.pop(r, None)

    def _accuse(self, sender: int, r: int, what: str, samples: int) -> Part:
        """Tell all others, so that the basket goes round this node from now on."""
        self.note(r, what, sender, samples)
        self.absent.add(sender)
        others = tuple(i for ring in self.table.groups for i in ring if i != self.node.id)
        yield Send(others, r, Absent(sender))

    def pass_on(self, to: int, r: int, basket: Basket) -> Part:
        arrives_in = r + (self.ring.index(to) < self.position)
        self.last = Send((to,), arrives_in, basket.shuffled(self.node.stream))
        yield self.last

    def before(self, node: int, r: int) -> int | None:
        """Who sends to this node: the nearest before it that is present.

        In the first round the basket comes from the ring's first node: nobody sends to that.
        """
        ring = self.table.groups[self.table.group_of(node)]
        p = ring.index(node)
        behind = ring[:p][::-1] if r == 1 else ring[:p][::-1] + ring[:p:-1]
        return next((i for i in behind if i not in self.absent), None)

    def next(self) -> int | None:
        p = self.position
        ahead = self.ring[p + 1 :] + self.ring[:p]
        return next((i for i in ahead if i not in self.absent), None)

    # -- between groups --------------------------------------------------------------------------

    def senders(self, group: int) -> tuple[int, ...]:
        """The first present nodes of a group."""
        present = [i for i in self.table.groups[group] if i not in self.absent]
        return tuple(present[: self.table.senders])

    def missing(self) -> list[int]:
        """Groups of which fewer baskets have come than there are senders."""
        come = Counter(g for g, _ in self.groups)
        others = [g for g in range(len(self.table.groups)) if g != self.group]
        return [g for g in others if come[g] < len(self.senders(g))]

    def pause(self) -> Part:
        """Until the longest dummy round is over: then the links are free."""
        until = self.now + self.table.until_global(len(self.ring), self.position)
        while self.now < until and (yield from self.listen(until)):
            pass

    def from_groups(self) -> Generator[Request, Any, list[tuple[int, Basket]]]:
        """What has come from other groups by the end."""
        end = self.node.start + self.table.end()
        while self.missing() and (yield from self.listen(end)):
            pass
        for g in self.missing():
            silent = [i for i in self.senders(g) if (g, i) not in self.groups]
            self.note(self.table.global_round, "group missing", silent[0], 0)
        return [(g, self.groups[g, i]) for g, i in sorted(self.groups)]

    # -- what arrives ----------------------------------------------------------------------------

    def listen(self, until: float) -> Generator[Request, Any, bool]:
        """Take in what comes next; False once the time is over."""
        wait = min([until, *(moment for moment, _ in self.early)])
        arrival = yield Receive(wait)
        self.now = arrival.time
        if isinstance(arrival, Arrival):
            ready = [] if self._is_early(arrival) else [arrival]
        elif wait == until:
            return False
        else:
            ready = [report for moment, report in self.early if moment <= wait]
            self.early = [(moment, report) for moment, report in self.early if moment > wait]
        for each in ready:
            self.take_in(each)
            if self.again is not None:
                self.last, self.again = self.again, None
                yield self.last
        return True

    def _is_early(self, arrival: Arrival) -> bool:
        """A report of absence that cannot be true yet is kept till it can."""
        if not isinstance(arrival.body, Absent):
            return False
        if not 1 <= arrival.round <= self.table.rounds + 1:
            return True  # and is never looked at: there is no such round
        ring = self.table.groups[self.table.group_of(arrival.sender)]
        place = ring.index(arrival.sender)
        moment = self.node.start + self.table.first_call(len(ring), place, arrival.round)
        if self.now < moment:
            self.early.append((moment, arrival))
        return self.now < moment

    def take_in(self, arrival: Arrival) -> None:
        body, r, sender = arrival.body, arrival.round, arrival.sender
        if isinstance(body, Absent):
            if body.node == self.before(sender, r) and sender not in self.absent:
                self.absent.add(body.node)
                self.note(r, f"reported absent by {sender}", body.node, 0)
                self.again = self._lost(body.node, sender, r)
        elif isinstance(body, Basket):
            group = self.table.group_of(sender)
            in_cycle = group == self.group and 1 <= r <= self.table.rounds + 1
            shared = group != self.group and r == self.table.global_round
            if in_cycle and sender == self.before(self.node.id, r):
                self.here.setdefault(r, self._samples_of(body, sender, r))
            elif shared and sender in self.senders(group):
                basket = self._samples_of(body, sender, r)
                if len(basket) > self.table.most_from_group(group):
                    self.note(r, "too many samples", sender, len(basket))
                    basket = self.empty
                self.groups.setdefault((group, sender), basket)
            else:
                self.note(r, "unexpected basket", sender, len(body))

    def _lost(self, absent: int, reporter: int, r: int) -> Send | None:
        """What this node had passed to the absent one, for the one who waited for it in round r."""
        if self.last is None or self.last.to != (absent,) or self.next() != reporter:
            return None
        place = self.ring.index
        if self.last.round != r - (place(reporter) < place(absent)):
            return None
        return Send((reporter,), r, self.last.body)

    def _samples_of(self, basket: Basket, sender: int, r: int) -> Basket:
        """Without what cannot be a sample."""
        good = basket.alike(self.empty)
        kept = basket.only(self.node.is_sample(basket)) if good else self.empty
        if len(kept) < len(basket):
            self.note(r, "no samples", sender, len(basket) - len(kept))
        return kept
