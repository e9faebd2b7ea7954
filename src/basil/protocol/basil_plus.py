"""Basil+ (Algorithm 3): rings in parallel, joined by robust averaging.

Each stage starts for a node as soon as what it needs is there, not when all nodes are done with the
one before: the last nodes of the first group send when their own turn is over, and a ring starts
when its first node has chosen.
"""

from functools import partial

from torch import Tensor

from basil.learning.promises import Selection, tensor_of
from basil.protocol.basil import robust_training, undefended
from basil.protocol.exchange import Exchange, mixed
from basil.protocol.inbox import JOINING
from basil.protocol.node import Node
from basil.protocol.numbering import AGGREGATION, MULTICAST, RING
from basil.protocol.requests import Combine, Protocol, Record


def basil_plus(node: Node) -> Protocol:
    """Rings in parallel, each as in Basil, joined by averages that are chosen by loss (Alg. 3).

    The rings, τ and the depth of the aggregation are those of [ring]: groups, group_rounds, fanout.
    With one group this is Basil.
    """
    groups = Exchange(node)  # Stage 1
    inbox, mine = groups.inbox, groups.inbox.state
    if node.rejoin_round is not None:
        yield from groups.rejoin(node.rejoin_round)
    while (k := inbox.global_round) <= node.rounds:
        # A node that has been restarted goes on in the stage in which it was.
        if mine.stage == JOINING:
            yield from start_from(groups, k - 1)
            mine.stage = RING
            yield from inbox.report()
            yield inbox.checkpoint()
        yield from robust_training(groups.node, inbox, inbox.numbering.last_lap(k))  # Stage 2
        if mine.stage == AGGREGATION:
            yield from aggregate(groups, k)  # Stage 3
        if mine.stage == MULTICAST:
            yield from hand_round(groups, k)  # Stage 4
            yield from start_from(groups, k)
            yield from inbox.report()
            yield Record(k, mine.model)
            mine.stage = RING
            yield inbox.checkpoint()


def aggregate(groups: Exchange, k: int) -> Protocol:
    """Stage 3: S_g choose one of the averages of the group before, mix in their own, send it on."""
    mine = groups.inbox.state
    if not groups.passes_on:
        mine.stage = MULTICAST
        yield groups.inbox.checkpoint()
        return
    lap, z = groups.numbering.last_lap(k), mine.model if mine.average is None else mine.average
    for hop in groups.route.hops[mine.hops :]:  # whoever was restarted goes on in the midst of them
        sent = groups.call(k, AGGREGATION, hop.source, hop.depth)
        chosen = yield from groups.chosen_of(sent, lap, z, (hop.own, hop.theirs))  # eq. (13)
        z = yield Combine(partial(mixed, z, chosen, hop.own, hop.theirs), averages=1)  # eq. (11)
        mine.hops, mine.average = mine.hops + 1, z
    mine.stage, mine.hops, mine.average = MULTICAST, 0, None
    yield from groups.send(groups.last(groups.route.target), groups.numbering.aggregation(k), z)


def hand_round(groups: Exchange, k: int) -> Protocol:
    """Stage 4: S_1 choose one of the averages over all groups and send it to every U_g."""
    if not groups.hands_round or groups.has_handed_round(k):
        return
    mine, lap = groups.inbox.state, groups.numbering.last_lap(k)
    sent = groups.call(k, AGGREGATION, len(groups.grouping) - 1, groups.grouping.depth + 1)
    z: Tensor | Selection = yield from groups.chosen_of(sent, lap, mine.model)
    yield from groups.send_to_all(k, tensor_of(z))


def start_from(groups: Exchange, k: int) -> Protocol:
    """U_g choose one of what S_1 sent in global round k.  The others start from their own model."""
    mine = groups.inbox.state
    sent = groups.call(k, MULTICAST, 0, groups.grouping.depth + 2)
    since = sent.until
    if groups.starts:
        lap = groups.numbering.last_lap(k) + 1  # whose batch the next update will be on, too
        chosen = yield from groups.chosen_of(sent, lap, mine.model)
        mine.model, since = tensor_of(chosen), mine.now
    groups.begin_laps(k, since)


def r_plain_plus(node: Node) -> Protocol:
    """Rings in parallel without a defence: the groups' last models are averaged (§VI-B).

    The last node of each ring passes the average on, and the first one goes on from it; everybody
    is trusted.  The same as Basil+ with S = 1 and nothing to compare.
    """
    return basil_plus(undefended(node))
