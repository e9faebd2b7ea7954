"""UBAR (Guo et al., 2020) as Appendix G has it: by distance first, then by performance."""

from functools import partial

import torch
from torch import Tensor

from basil.protocol.graph.aggregate import distances, mean_of_better
from basil.protocol.graph.graph_round import RoundInput, Step, gossip, share
from basil.protocol.node import Node
from basil.protocol.requests import Combine, Protocol, ScoreAll


def ubar(node: Node, *, keep_fraction: float = 0.33, alpha: float = 0.5) -> Protocol:
    """Of the nearest neighbours, average those that do no worse on one's own data (App. G).

    x_i ← α x_i + (1 − α) R_UBAR − η ∇f_i(x_i).

    Stage 1 keeps the ρ|N_i| neighbours (rounded down, at least one) whose models are nearest to
    one's own; stage 2 keeps of these the ones whose loss on this round's first batch is at most
    one's own, or else the one with the lowest loss.  R_UBAR is their mean.  The gradient is taken
    at one's own model, not at the mixture; with several local steps, the way that they go from
    there is added.
    """
    share(keep_fraction, "keep_fraction", zero=False)
    share(alpha, "alpha")
    keep = max(1, int(keep_fraction * len(node.on_graph.neighbours)))

    def scheme(heard: RoundInput) -> Step:
        own = heard.own
        if not heard.senders:
            return (yield from heard.train(own))
        near, models = partial(_nearest, keep=keep), (own, *heard.bodies)
        nearest = yield Combine(near, len(heard.senders), args=models)  # stage 1
        losses = yield ScoreAll(torch.cat([own[None], nearest]), heard.batches[0])
        update = yield from heard.update()
        mix = partial(_mixed, alpha=alpha)
        args = own, nearest, losses.wait(), update
        mixed: Tensor = yield Combine(mix, averages=1, args=args)  # stage 2
        return mixed

    return gossip(node, scheme)


def _nearest(own: Tensor, *others: Tensor, keep: int) -> Tensor:
    """The models nearest to one's own.  Which these are nobody looks at: a GPU is not waited for.

    The others are not kept: all nodes are here at once, each with all its neighbours' models.
    """
    models = torch.stack(others)
    return models.index_select(0, distances(own, models).argsort(stable=True)[:keep])


def _mixed(own: Tensor, nearest: Tensor, losses: Tensor, update: Tensor, *, alpha: float) -> Tensor:
    means = losses.mean(1, dtype=torch.float64)
    return alpha * own + (1 - alpha) * mean_of_better(own, nearest, means[1:], means[0]) + update
