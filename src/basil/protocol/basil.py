"""Basil (Algorithm 1): sequential training on a ring with a memory and a choice."""

from dataclasses import replace
from functools import partial

from basil.protocol.average import averaged
from basil.protocol.extrapolation import extrapolated
from basil.protocol.inbox import Inbox
from basil.protocol.node import Node
from basil.protocol.requests import Protocol, Record, Train
from basil.protocol.sketch import Sketch


def basil(node: Node, *, sketch: int = 0, gamma: float = 2.0, kappa: float = 1.0) -> Protocol:
    """Choose the stored model with the lowest loss on one's own data, improve it, pass it on.

    Algorithm 1 of the paper, for one node, with dropout and return as in Appendix C.  What the
    paper does when the turn comes (S evaluations) is done here when a model arrives: the same
    numbers, since the batch of a round is drawn before, but only one evaluation is left between
    an arrival and the turn.

    `sketch` (not in the paper; 0: none): models are announced by so many numbers, and a node
    fetches those that are near its own last one, as `protocol.sketch.Sketch` has it.  What is far
    off costs a sketch then, and is no candidate; fetched models are scored in the turn.
    """
    sketches = Sketch(sketch, gamma, kappa, node.rounds, node.seed) if sketch else None
    # Line 4: StoredModels holds x⁰ (after a restart, what it held then).
    inbox = Inbox(node, sketches=sketches)
    if node.rejoin_round is not None:
        yield from inbox.rejoin(node.rejoin_round)  # Appendix C
    yield from robust_training(node, inbox, node.rounds)


def robust_training(node: Node, inbox: Inbox, rounds: int) -> Protocol:
    """Lines 7 to 16 for this node, up to this round of its ring."""
    mine, numbering = inbox.state, inbox.numbering
    for k in range(mine.round, rounds + 1):  # line 7
        batches = node.draw(k)  # private, and drawn before the models arrive
        judged = node.judge(k, batches)
        yield from inbox.wait_for_turn(k, judged)  # line 8; 15 and 16 for what others send

        candidates, choice = yield from inbox.select(  # line 10, eq. (3)
            mine.stored, k, judged, mine.model, mine.rule
        )
        if inbox.extrapolates and mine.turned:  # not in the paper
            laps = node.on_ring.extrapolate / node.lap / (k - mine.turned)
            choice = yield from extrapolated(candidates, choice, laps)
        rate, key = node.rate(numbering.global_round(k)), partial(node.key, k)
        step = partial(Train, batches=batches, rate=rate, key=key)
        turn = yield from inbox.improve(inbox.rule, candidates, choice, step, mine.optimizer)
        mine.model = mine.passed_on = turn.model  # line 11, eq. (2)
        mine.optimizer, mine.rule = turn.memory, turn.rule

        over, shown = numbering.ends_laps(k) and not numbering.joined, mine.model
        if over and inbox.scores and node.averages(numbering.global_round(k)):
            shown = yield from averaged(candidates, mine.model)
        chosen = turn.senders, turn.selected
        yield Record(numbering.global_round(k), shown, *chosen, last=over)
        now = yield inbox.send(inbox.receivers(k), numbering.number(k), mine.model)  # line 14
        yield inbox.end_turn(k, now)


def basil_published(node: Node) -> Protocol:
    """Basil as published: models as they come, not in canonical form (scheme.canonical = false).

    Beside `basil`, to see what the canonical form is for (docs/research/symmetry.md).
    """
    return basil(node)


def r_plain(node: Node) -> Protocol:
    """Train on whatever the previous node sent: the ring without a defence (R-plain, §VI-A).

    The same ring with S = 1 and nothing to compare.  The node before you is trusted.
    """
    return basil(undefended(node))


def undefended(node: Node) -> Node:
    """The same node with one predecessor, and no rule."""
    place = node.on_ring
    reach = 1 + place.reach - place.connectivity  # d more, where d may be away
    return replace(node, on_ring=replace(place, connectivity=1, reach=reach, rule=None))
