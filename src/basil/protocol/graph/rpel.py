"""RPEL (El Mrini, Farhadkhani and Guerraoui 2025, arXiv 2510.08311): pull from a few, at random."""

import math
from functools import lru_cache

from torch import Tensor

from basil import rng
from basil.errors import UserError
from basil.protocol.graph.aggregate import ascending, finite_or_own, sound
from basil.protocol.graph.graph_round import Partners, RoundInput, Step, gossip, share
from basil.protocol.graph.mixing import nearest_means
from basil.protocol.looks_at import COORDINATES
from basil.protocol.node import Node
from basil.protocol.requests import Protocol
from basil.table import states

FAILURE = 0.01  # the chance that a node once pulls more Byzantine models than it sets aside
AHEAD = 10  # rounds that somebody who has not pulled from a node lately may be ahead of it


@states(looks_at=COORDINATES)
def rpel(node: Node, *, pull: int = 0, discard: int = -1, momentum: float = 0.9) -> Protocol:
    """Pull the models of a few neighbours, others in every round, and combine them robustly.

    x_i ← trimmed mean, coordinate by coordinate and after nearest-neighbour mixing, of x_i and
    those of s = `pull` neighbours drawn for this round; then a step along the local momentum.
    0: s = 2 ⌈ln N⌉, of the order that the paper proves; the factor is ours.

    b̂ = `discard` models are set aside, at most (s − 1) / 2.  −1: so many that nobody
    pulls more Byzantine models in the whole run, but with probability 0.01 (union bound over nodes
    and rounds).  (The authors find b̂ by simulation.  Their code was not found.)

    All who know the seed know who pulls from whom: no request is sent, only models are.
    """
    share(momentum, "momentum")
    graph, neighbours = node.on_graph.graph, len(node.on_graph.neighbours)
    nodes = len(graph.neighbours)
    if pull < 0:
        raise UserError(f"scheme.pull = {pull}: it must be 1 or more, or 0 for 2 ⌈ln N⌉")
    s = pull or 2 * math.ceil(math.log(nodes))
    pulled = min(s, neighbours)
    most = max(0, (pulled - 1) // 2)
    if discard > most:
        raise UserError(
            f"scheme.discard = {discard}: of {pulled} models fewer than half can be set aside, so"
            f" at most {most}"
        )
    byzantine = node.on_graph.byzantine
    if discard < 0:
        discard = min(most, effective(neighbours, byzantine, pulled, nodes * node.rounds))

    def scheme(heard: RoundInput) -> Step:
        aside = min(discard, max(0, (len(heard.senders) - 1) // 2))
        mixed = yield from heard.aggregate(
            lambda own, models: mixed_and_trimmed(own, models, aside),
            distances=(len(heard.senders) + 1) // 2,
        )
        return (yield from heard.momentum_step(mixed, momentum))

    def drawn(k: int, by: int) -> frozenset[int]:
        return _drawn(node.seed, k, by, graph.neighbours[by], s)

    def partners(k: int) -> Partners:
        to = tuple(j for j in node.on_graph.neighbours if node.id in drawn(k, j))
        return Partners(to, drawn(k, node.id), AHEAD)

    return gossip(node, scheme, partners)


@lru_cache(maxsize=4096)
def _drawn(seed: int, k: int, by: int, neighbours: tuple[int, ...], pull: int) -> frozenset[int]:
    """From whom a node pulls in round k.  In a simulation each of its neighbours asks."""
    order = rng.stream(seed, "node", by, "round", k, "pulls").permutation(len(neighbours))
    return frozenset(neighbours[i] for i in order[:pull])


def effective(neighbours: int, byzantine: int, pull: int, draws: int) -> int:
    """The smallest b̂ that `pull` of the neighbours exceed in one of so many draws with p ≤ 0.01.

    At most: draws · P(X > b̂) with X hypergeometric.
    """
    byzantine = min(byzantine, neighbours)
    total, tail = math.comb(neighbours, pull), 0
    for found in range(min(byzantine, pull), 0, -1):
        tail += math.comb(byzantine, found) * math.comb(neighbours - byzantine, pull - found)
        if draws * tail > FAILURE * total:
            return found
    return 0


def mixed_and_trimmed(own: Tensor, models: Tensor, discard: int) -> Tensor:
    """Per coordinate: the mean of all mixed models without the largest and smallest."""
    mixed = finite_or_own(own, nearest_means(own, models, len(models) + 1 - discard))
    kept = ascending(mixed)[discard : len(mixed) - discard]
    return sound(own, kept.mean(0))
