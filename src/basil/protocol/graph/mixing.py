"""What a node may do to its neighbours' models before a rule combines them: pre-aggregations.

One's own model stays as it is.  A rule sees the mixed models in the place of those that came.
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from basil import rng
from basil.errors import UserError
from basil.protocol.graph.aggregate import distances, finite_or_own
from basil.protocol.graph.graph_round import RoundInput, among, byzantine_tolerated
from basil.protocol.looks_at import DISTANCES
from basil.protocol.node import Node
from basil.protocol.requests import Combine, Request
from basil.table import Table, states

Mixing: TypeAlias = Callable[[RoundInput], Generator[Request, Any, RoundInput]]


@states(looks_at=DISTANCES)
def none(node: Node) -> Mixing:
    """Models as they come."""

    def mix(heard: RoundInput) -> Generator[Request, Any, RoundInput]:
        yield from ()
        return heard

    return mix


@states(looks_at=DISTANCES)
def nnm(node: Node) -> Mixing:
    """Each model becomes the mean of the n − b nearest to it (nearest-neighbour mixing).

    Among the n = m + 1 models of oneself and m neighbours, itself included (Allouah et al., AISTATS
    2023, "Fixing by mixing").  b: as many as may be Byzantine, but fewer than half.
    """
    byzantine = byzantine_tolerated(node, -1, "")

    def mix(heard: RoundInput) -> Generator[Request, Any, RoundInput]:
        n = len(heard.senders) + 1
        work = partial(nearest_means, heard.own, heard.models, n - among(heard, byzantine))
        mixed = yield Combine(work, distances=n * (n - 1) // 2, averages=n - 1)
        return replace(heard, bodies=tuple(mixed[1:]))

    return mix


@states(looks_at=DISTANCES)
def bucketing(node: Node, *, bucket: int = 2) -> Mixing:
    """The neighbours in a random order, `bucket` at a time; the mean of each such bucket.

    A bucket counts as one neighbour, with the weight of all in it (Karimireddy, He and Jaggi, ICLR
    2022, whose s is 2).  So fewer are left, of which still b may be Byzantine.
    """
    if bucket < 1:
        raise UserError(f"graph.bucket = {bucket}: it must be 1 or more")

    def mix(heard: RoundInput) -> Generator[Request, Any, RoundInput]:
        stream = rng.stream(node.seed, "node", node.id, "round", heard.round, "buckets")
        order = stream.permutation(len(heard.senders)).tolist()
        buckets = [order[i : i + bucket] for i in range(0, len(order), bucket)]
        work = partial(bucket_means, heard.own, heard.models, buckets)
        means = yield Combine(work, averages=1)
        groups = tuple(tuple(heard.senders[i] for i in members) for members in buckets)
        first = tuple(group[0] for group in groups)
        return replace(heard, senders=first, bodies=tuple(means), groups=groups)

    return mix


@states(looks_at=DISTANCES)
def arc(node: Node) -> Mixing:
    """The largest differences from one's own model are cut down to the next (adaptive clipping).

    Of m neighbours ⌊2 b (m − b) / m⌋ (Allouah et al. 2024, arXiv 2405.14432, who clip gradients;
    here models are exchanged, so it is x_j − x_i).  b: as many as may be Byzantine, but fewer than
    half.
    """
    byzantine = byzantine_tolerated(node, -1, "")

    def mix(heard: RoundInput) -> Generator[Request, Any, RoundInput]:
        work = partial(adaptively_clipped, heard.own, heard.models, among(heard, byzantine))
        return replace(heard, bodies=tuple((yield Combine(work, distances=len(heard.senders)))))

    return mix


MIXINGS: Table[Callable[..., Mixing]] = Table(
    "mixing", {"none": none, "nnm": nnm, "bucketing": bucketing, "arc": arc}, takes=("node",)
)


def nearest_means(own: Tensor, models: Tensor, keep: int) -> Tensor:
    """For oneself and each neighbour: the mean of the `keep` models nearest to it."""
    rows = torch.cat([own[None], finite_or_own(own, models)])
    apart = torch.stack([distances(row, rows) for row in rows]).fill_diagonal_(0)
    nearest = apart.argsort(dim=1, stable=True)[:, :keep]
    return torch.zeros_like(apart).scatter_(1, nearest, 1 / keep) @ rows


def bucket_means(own: Tensor, models: Tensor, buckets: list[list[int]]) -> Tensor:
    """The mean of the models in each bucket, given by their numbers."""
    rows = finite_or_own(own, models)
    return torch.stack([rows[members].mean(0) for members in buckets])


def adaptively_clipped(own: Tensor, models: Tensor, byzantine: int) -> Tensor:
    """x_i + (x_j − x_i) min(1, τ/‖x_j − x_i‖), τ the largest distance that is not cut down."""
    apart = distances(own, models)
    cut = 2 * byzantine * (len(models) - byzantine) // len(models)
    limit = apart.sort().values[len(models) - cut - 1]
    factor = torch.where(apart > limit, limit / apart, 1.0)
    return own + (finite_or_own(own, models) - own) * factor[:, None]
