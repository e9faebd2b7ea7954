"""UBAR (Guo et al., 2020) as Appendix G has it: by distance first, then by performance."""

from functools import partial

import torch

from basil.protocol.aggregate import distances, mean_of_better
from basil.protocol.gossip import Heard, Step, gossip, share
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
    keep = max(1, int(keep_fraction * len(node.neighbours)))

    def scheme(heard: Heard) -> Step:
        own = heard.own
        if not heard.senders:
            return (yield from heard.train(own))
        nearest = yield Combine(partial(_nearest, heard, keep), len(heard.senders))  # stage 1
        losses = yield ScoreAll(torch.cat([own[None], nearest]), heard.batches[0])
        means = losses.wait().mean(1, dtype=torch.float64)
        update = yield from heard.update()

        def mix() -> torch.Tensor:
            better = mean_of_better(own, nearest, means[1:], means[0])  # stage 2
            return alpha * own + (1 - alpha) * better + update

        mixed: torch.Tensor = yield Combine(mix, averages=1)
        return mixed

    return gossip(node, scheme)


def _nearest(heard: Heard, keep: int) -> torch.Tensor:
    """The models nearest to one's own.  Which these are nobody looks at: a GPU is not waited for.

    The others are not kept: all nodes are here at once, each with a copy of all its neighbours'.
    """
    models = torch.stack(heard.bodies)
    return models.index_select(0, distances(heard.own, models).argsort(stable=True)[:keep])
