"""Anonymous cyclic data sharing (Algorithm 2): what nodes do before they train.

In a ring of n nodes a basket goes round.  Each node takes out what it put in a round ago, keeps a
copy of the rest, puts in its next batch, shuffles and passes it on.  Who receives the basket cannot
tell whose samples are in it, as long as nodes do not collude.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from basil.protocol.requests import Request, Send
from basil.protocol.sharing.basket import Basket
from basil.protocol.sharing.basket_inbox import BasketInbox, Incident, Part, Sharer

__all__ = ["Incident", "Receipt", "Sharer", "SharingOutcome", "acds"]


@dataclass(frozen=True)
class Receipt:
    """What was kept of one basket.  `group` and `round` say how many may have owned it."""

    round: int
    group: int
    samples: int


@dataclass(eq=False)
class SharingOutcome:
    """What a node has after the sharing."""

    received: Basket
    offered: Basket
    receipts: list[Receipt] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    time: float = 0.0


def acds(node: Sharer) -> Generator[Request, Any, SharingOutcome]:
    """Algorithm 2 for one node.  Returns what it has received."""
    inbox, table = BasketInbox(node), node.table
    chosen, batches = random_selection(inbox)  # phase 1
    stored = Stored(inbox.empty)  # DStored
    if len(inbox.ring) > 1:
        yield from share_in_group(inbox, batches, stored)  # phase 2
        if len(chosen):
            stored.samples = stored.samples.plus(chosen).distinct()
    if len(table.groups) > 1:
        own = stored.samples if len(inbox.ring) > 1 else chosen
        yield from share_globally(inbox, own, stored)  # phase 3
    received = stored.samples.unknown_to(node.samples)
    return SharingOutcome(received, chosen, stored.receipts, inbox.incidents, inbox.now)


def random_selection(inbox: BasketInbox) -> tuple[Basket, list[Basket]]:
    """α D samples, and as H batches of M; dummies where there are not enough."""
    node, H, M = inbox.node, inbox.table.batches, inbox.table.size
    chosen = padded = node.samples.shuffled(node.stream).only(slice(0, H * M))
    missing = H * M - len(chosen)
    if missing:
        padded = chosen.plus(node.dummies(missing)).shuffled(node.stream)
        inbox.note(0, "padded with dummies", node.id, missing)
    batches = [padded.only(slice(h * M, h * M + M)) for h in range(H)]
    return chosen, [node.dummies(M), *batches] if inbox.table.opening else batches


def share_in_group(inbox: BasketInbox, batches: list[Basket], stored: "Stored") -> Part:
    """RobustShare in each round r, and in a dummy round after the last."""
    node, table, me, n = inbox.node, inbox.table, inbox.position, len(inbox.ring)
    for r in range(1, table.rounds + 2):
        dummy_round = r == table.rounds + 1  # nodes 1 … n−1 receive, 1 … n−2 send
        if node.id in inbox.absent or (dummy_round and me == n - 1):
            return
        put_in = batches[r - 2] if r > 1 else inbox.empty
        shared = yield from inbox.received(r, put_in)  # DShared.remove(c^{h−1})
        if shared is not None:
            stored.add(shared, node, r, inbox.group)  # DStored.add(DShared)
        to = inbox.next()
        if to is None or (dummy_round and not me < inbox.ring.index(to) < n - 1):
            continue
        batch = node.dummies(table.size) if dummy_round else batches[r - 1]
        basket = (inbox.empty if shared is None else shared).plus(batch)  # DShared.add(c^h)
        yield from inbox.pass_on(to, r, basket)  # shuffled


def share_globally(inbox: BasketInbox, own: Basket, stored: "Stored") -> Part:
    """The first node of each group sends what the group has shared to all other groups.

    Any number of `senders` may do so in its place, the first ones of the group, at once: nobody
    can tell in time that the first is silent without making all others wait.
    """
    node, table = inbox.node, inbox.table
    if node.id in inbox.senders(inbox.group):
        yield from inbox.pause()
        others = [ring for g, ring in enumerate(table.groups) if g != inbox.group]
        everybody = tuple(i for ring in others for i in ring)
        yield Send(everybody, table.global_round, own.shuffled(node.stream))
    for group, basket in (yield from inbox.from_groups()):
        stored.add(basket, node, table.global_round, group)


@dataclass(eq=False)
class Stored:
    """DStored: what a node has kept of the baskets, each sample once, without known dummies."""

    samples: Basket
    receipts: list[Receipt] = field(default_factory=list)

    def add(self, basket: Basket, node: Sharer, r: int, group: int) -> None:
        new = basket.only(~node.is_dummy(basket)).distinct().unknown_to(self.samples)
        self.samples = self.samples.plus(new)
        self.receipts.append(Receipt(r, group, len(new)))
