"""Anonymous cyclic data sharing (Algorithm 2): what nodes do before they train.

In a ring of n nodes a basket goes round.  Each node takes out what it put in a round ago, keeps a
copy of the rest, puts in its next batch, shuffles and passes it on.  Who receives the basket cannot
tell whose samples are in it, as long as nodes do not collude.

What the paper leaves open, a node that does not keep to this:

- Silence.  Every pass has a deadline on a timetable that each node computes for itself.  Whoever
  waited in vain tells all others, and from then on the basket goes round the absent node.  The node
  before that one still has the basket and sends it once more; if that, too, comes late, its content
  is lost, and its owners notice when their batch does not come back.
- Too much.  A basket that holds more than the other n − 1 nodes can have put in is refused, and its
  sender counts as absent: so a node that adds twice, or does not take out, is out.
- Too little, or samples that are none: noted, and the cycle goes on with the rest.

- A first node that does not share its group with the others.  Any number of `senders` may do so in
  its place, the first ones of the group, at once: nobody can tell in time that the first is silent
  without making all others wait.

A node is believed only about its own predecessor, so a liar can exclude one node in each round.
"""

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from basil.protocol.basket import Basket
from basil.protocol.requests import Absent, Arrival, Missing, Receive, Request, Send
from basil.protocol.timetable import Timetable

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
class Receipt:
    """What was kept of one basket.  `group` and `round` say how many may have owned it."""

    round: int
    group: int
    samples: int


@dataclass(frozen=True)
class Incident:
    """Something that did not go as it should: what, in which round, concerning whom, how many."""

    round: int
    what: str
    about: int
    samples: int


@dataclass(eq=False)
class Outcome:
    """What a node has after the sharing."""

    received: Basket
    offered: Basket
    receipts: list[Receipt] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    time: float = 0.0


def acds(node: Sharer) -> Generator[Request, Any, Outcome]:
    """Algorithm 2 for one node.  Returns what it has received."""
    return (yield from Member(node).run())


class Member:
    """One node's part.  Its attributes are all that it remembers."""

    def __init__(self, node: Sharer) -> None:
        self.node, self.table = node, node.table
        self.group = self.table.group_of(node.id)
        self.ring = self.table.groups[self.group]
        self.position = self.ring.index(node.id)
        self.absent: set[int] = set()
        self.here: dict[int, Basket] = {}  # round -> the predecessor's basket
        self.groups: dict[tuple[int, int], Basket] = {}  # (group, sender) -> what it sent
        self.now = node.start
        self.last: Send | None = None  # the last basket passed on …
        self.again: Send | None = None  # … which is to be sent once more
        self.empty = node.samples.only(slice(0, 0))
        self.stored = self.empty
        self.outcome = Outcome(self.empty, self.empty)

    def run(self) -> Generator[Request, Any, Outcome]:
        offers = self._select()
        if len(self.ring) > 1:
            yield from self._go_round(offers)
        if len(self.table.groups) > 1:
            yield from self._share_globally()
        self.outcome.received = self.stored.unknown_to(self.node.samples)
        self.outcome.time = self.now
        return self.outcome

    # -- phase 1 -----------------------------------------------------------------------------

    def _select(self) -> list[Basket]:
        """RandomSelection: H batches of M samples; dummies where there are not enough."""
        H, M = self.table.batches, self.table.size
        chosen = self.node.samples.shuffled(self.node.stream).only(slice(0, H * M))
        self.outcome.offered = chosen
        missing = H * M - len(chosen)
        if missing:
            padded = chosen.plus(self.node.dummies(missing))
            chosen = padded.shuffled(self.node.stream)
            self._note(0, "padded with dummies", self.node.id, missing)
        batches = [chosen.only(slice(h * M, h * M + M)) for h in range(H)]
        return [self.node.dummies(M), *batches] if self.table.opening else batches

    # -- phase 2 -----------------------------------------------------------------------------

    def _go_round(self, offers: list[Basket]) -> Part:
        last, n = self.table.rounds, len(self.ring)
        for r in range(1, last + 2):
            closing = r == last + 1  # the dummy round: nodes 1 … n−1 receive, 1 … n−2 send
            if self.node.id in self.absent or (closing and self.position == n - 1):
                break
            basket = yield from self._received(r)
            put_in = offers[r - 2] if r > 1 else self.empty
            basket = yield from self._robust_share(basket, put_in, r)
            to = self._next()
            if to is None or (closing and not self.position < self.ring.index(to) < n - 1):
                continue
            add = self.node.dummies(self.table.size) if closing else offers[r - 1]
            arrives_in = r + (self.ring.index(to) < self.position)
            self.last = Send((to,), arrives_in, basket.plus(add).shuffled(self.node.stream))
            yield self.last
        own = self.outcome.offered
        self.stored = self.stored.plus(own).distinct() if len(own) else self.stored

    def _robust_share(
        self, basket: Basket | None, put_in: Basket, r: int
    ) -> Generator[Request, Any, Basket]:
        """Take out one's last batch, keep the rest.  Answers with what is to be passed on."""
        if basket is None:
            return self.empty
        others = basket.without(put_in)
        lost = len(put_in) - (len(basket) - len(others))
        if lost:
            self._note(r, "own samples did not come back", self.node.id, lost)
        most = self.table.most_from_others(len(self.ring), self.position, r)
        sender = self._before(self.node.id, r)
        if len(others) > most and sender is not None:
            yield from self._accuse(sender, r, "too many samples", len(others) - most)
            basket = yield from self._once_more(r)
            return (yield from self._robust_share(basket, put_in, r))
        if len(others) < most:
            self._note(r, "too few samples", -1 if sender is None else sender, most - len(others))
        self._store(others, r, self.group)
        return others

    def _received(self, r: int) -> Generator[Request, Any, Basket | None]:
        """The predecessor's basket of this round; None without one."""
        until = self.node.start + self.table.deadline(len(self.ring), self.position, r)
        while True:
            sender = self._before(self.node.id, r)
            if r in self.here:
                return self.here.pop(r)
            if sender is None or self.node.id in self.absent:
                return None
            if not (yield from self._listen(until)):
                break
        yield from self._accuse(sender, r, "silent", 0)
        return (yield from self._once_more(r))

    def _once_more(self, r: int) -> Generator[Request, Any, Basket | None]:
        """After an accusation: the same basket from the node before, which still has it."""
        n, start = len(self.ring), self.node.start
        until = start + self.table.last_call(n, self.position, r)
        while self._before(self.node.id, r) is not None and r not in self.here:
            if not (yield from self._listen(until)):
                break
        return self.here.pop(r, None)

    def _accuse(self, sender: int, r: int, what: str, samples: int) -> Part:
        """Tell all others, so that the basket goes round this node from now on."""
        self._note(r, what, sender, samples)
        self.absent.add(sender)
        others = tuple(i for ring in self.table.groups for i in ring if i != self.node.id)
        yield Send(others, r, Absent(sender))

    def _before(self, node: int, r: int) -> int | None:
        """Who sends to this node: the nearest before it that is present.

        In the first round the basket comes from the ring's first node: nobody sends to that.
        """
        ring = self.table.groups[self.table.group_of(node)]
        p = ring.index(node)
        behind = ring[:p][::-1] if r == 1 else ring[:p][::-1] + ring[:p:-1]
        return next((i for i in behind if i not in self.absent), None)

    def _next(self) -> int | None:
        p = self.position
        ahead = self.ring[p + 1 :] + self.ring[:p]
        return next((i for i in ahead if i not in self.absent), None)

    # -- phase 3 -----------------------------------------------------------------------------

    def _share_globally(self) -> Part:
        """The first node of each group sends what the group has shared to all other groups.

        With several senders so do the next ones, and what arrives is put together: then the data
        of a group reaches all others unless all its senders are silent.
        """
        table, end = self.table, self.node.start + self.table.end()
        mine = self.stored if len(self.ring) > 1 else self.outcome.offered
        if self.node.id in self._senders(self.group):
            # The links are free for it once the longest dummy round is over.
            pause = self.now + table.until_global(len(self.ring), self.position)
            while self.now < pause and (yield from self._listen(pause)):
                pass
            others = tuple(
                i for g, ring in enumerate(table.groups) if g != self.group for i in ring
            )
            yield Send(others, table.global_round, mine.shuffled(self.node.stream))
        while self._missing():
            if not (yield from self._listen(end)):
                break
        for g in self._missing():
            silent = [i for i in self._senders(g) if (g, i) not in self.groups]
            self._note(table.global_round, "group missing", silent[0], 0)
        for (g, _), basket in sorted(self.groups.items(), key=lambda item: item[0]):
            self._store(basket, table.global_round, g)

    def _missing(self) -> list[int]:
        """Groups of which fewer baskets have come than there are senders."""
        come = Counter(g for g, _ in self.groups)
        others = [g for g in range(len(self.table.groups)) if g != self.group]
        return [g for g in others if come[g] < len(self._senders(g))]

    def _senders(self, group: int) -> tuple[int, ...]:
        present = [i for i in self.table.groups[group] if i not in self.absent]
        return tuple(present[: self.table.senders])

    # -- what arrives ------------------------------------------------------------------------

    def _listen(self, until: float) -> Generator[Request, Any, bool]:
        """Take in what comes next; False once the time is over."""
        arrival = yield Receive(until)
        self.now = arrival.time
        if isinstance(arrival, Missing):
            return False
        self._take_in(arrival)
        if self.again is not None:
            self.last, self.again = self.again, None
            yield self.last
        return True

    def _take_in(self, arrival: Arrival) -> None:
        body, r, sender = arrival.body, arrival.round, arrival.sender
        if isinstance(body, Absent):
            if body.node == self._before(sender, r) and sender not in self.absent:
                self.absent.add(body.node)
                self._note(r, f"reported absent by {sender}", body.node, 0)
                self.again = self._lost(body.node, sender, r)
        elif isinstance(body, Basket):
            group = self.table.group_of(sender)
            in_cycle = group == self.group and 1 <= r <= self.table.rounds + 1
            if in_cycle and sender == self._before(self.node.id, r):
                self.here.setdefault(r, self._samples_of(body, sender, r))
            elif (
                group != self.group
                and r == self.table.global_round
                and sender in self._senders(group)
            ):
                basket = self._samples_of(body, sender, r)
                if len(basket) > self.table.most_from_group(group):
                    self._note(r, "too many samples", sender, len(basket))
                    basket = self.empty
                self.groups.setdefault((group, sender), basket)
            else:
                self._note(r, "unexpected basket", sender, len(body))

    def _lost(self, absent: int, reporter: int, r: int) -> Send | None:
        """What this node had passed to the absent one, for the one who waited for it in round r."""
        if self.last is None or self.last.to != (absent,) or self._next() != reporter:
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
            self._note(r, "no samples", sender, len(basket) - len(kept))
        return kept

    def _store(self, basket: Basket, r: int, group: int) -> None:
        samples = basket.only(~self.node.is_dummy(basket))
        new = samples.distinct().unknown_to(self.stored)
        self.stored = self.stored.plus(new)
        self.outcome.receipts.append(Receipt(r, group, len(new)))

    def _note(self, r: int, what: str, about: int, samples: int) -> None:
        self.outcome.incidents.append(Incident(r, what, about, samples))
