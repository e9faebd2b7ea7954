"""Data sets, partitions, graphs, networks and schedules: one property each, and a small run."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from basil import rng
from basil.data import DATASETS, PARTITIONS, load
from basil.errors import UserError
from basil.learning.metrics import METRICS
from basil.learning.models import LOSSES, MODELS
from basil.learning.optimizers import OPTIMIZERS
from basil.learning.schedule import SCHEDULES
from basil.testing.runs import check_runs, must
from basil.topology import GRAPHS, Population, agree_on_order, build_graph


def check_dataset(dataset: str | Callable[..., Any], **options: Any) -> None:
    """It passes the checks of every data set, is the same again, and a run with it works."""
    with DATASETS.lent(dataset) as name:
        try:
            made, again = load(name, 0, **options), load(name, 0, **options)
        except UserError as error:
            raise AssertionError(str(error)) from error
        for samples, same in ((made.train, again.train), (made.test, again.test)):
            must(
                np.array_equal(samples.x, same.x) and np.array_equal(samples.y, same.y),
                "the same seed must make the same samples: use basil.rng.stream(seed, name)",
            )
        if made.classes:  # the small recipe's network classifies
            check_runs("data", {"dataset": name, **options})


def check_partition(partition: str | Callable[..., Any], **options: Any) -> None:
    """Every sample goes to exactly one node, and no node goes without."""
    with PARTITIONS.lent(partition) as name:
        for n, nodes in ((60, 1), (60, 6), (199, 7)):
            check_deal(PARTITIONS[name], np.arange(n, dtype=np.int64) % 5, nodes, 0, **options)


def check_deal(
    partition: Callable[..., list[NDArray[np.int64]]],
    labels: NDArray[np.int64],
    nodes: int,
    seed: int,
    **options: Any,
) -> None:
    """The same for these labels; the same stream deals the same again, and labels stay."""
    before = labels.copy()
    parts = partition(labels, nodes, rng.stream(seed, "partition"), **options)
    again = partition(labels, nodes, rng.stream(seed, "partition"), **options)
    must(np.array_equal(before, labels), "it changes the labels that it was shown")
    must(len(parts) == nodes, f"{nodes} nodes get {len(parts)} parts")
    for part, same in zip(parts, again, strict=True):
        must(part.dtype == np.int64, f"indices are {part.dtype}, not int64")
        must(len(part) > 0, "a node goes without samples")
        must(np.array_equal(part, same), "the same stream must deal the same again")
    dealt = sorted(np.concatenate(parts).tolist())
    must(dealt == list(range(len(labels))), "not every sample goes to exactly one node")


def check_graph(graph: str | Callable[..., Any], **options: Any) -> None:
    """Benign nodes are connected, with and without a Byzantine one, and all compute the same."""
    with GRAPHS.lent(graph) as name:
        for size, byzantine, seed in ((8, 0, 0), (8, 1, 1), (16, 1, 2)):
            order = agree_on_order(range(size), seed)
            check_edges(name, Population(order, frozenset(order[:byzantine])), seed, **options)


def check_edges(name: str, people: Population, seed: int, **options: Any) -> None:
    """The same for these nodes."""
    graph = build_graph(name, people, seed, options)
    for i, mine in enumerate(graph.neighbours):
        must(bool(mine), f"node {i} has no neighbour")
        must(i not in mine, f"node {i} is its own neighbour")
        must(mine == tuple(sorted(set(mine))), f"node {i} has a neighbour twice")
        must(all(i in graph.neighbours[j] for j in mine), f"an edge of node {i} has one end only")
    must(build_graph(name, people, seed, options) == graph, "the same stream makes another graph")


def check_model(model: str | Callable[..., Any], **options: Any) -> None:
    """It trains on small samples, and the same seed gives the same network."""
    with MODELS.lent(model) as name:
        if getattr(MODELS[name], "regression", False):  # the small recipe's samples have classes
            network = MODELS[name]((10,), 0, **options)
            must(network(torch.zeros(3, 10)).shape == (3,), "it must have one output a sample")
        else:
            check_runs("learning", {"model": name, **options})


def check_loss(loss: str | Callable[..., Any], **options: Any) -> None:
    """One number for each sample, and a run with it."""
    with LOSSES.lent(loss) as name:
        check_runs("learning", {"loss": name, **options})


def check_metric(metric: str | Callable[..., Any], **options: Any) -> None:
    """A number for a classification, and a run that records it."""
    with METRICS.lent(metric) as name:
        check_runs("record", {"metrics": [name], **options})


def check_optimizer(optimizer: str | Callable[..., Any], **options: Any) -> None:
    """A new model from tensors that it leaves as they are, and a run with it."""
    with OPTIMIZERS.lent(optimizer) as name:
        model, gradient, remembered = torch.ones(6), torch.linspace(-1, 1, 6), dict[str, Any]()
        for _ in range(2):
            given = [model, gradient, *(v for v in remembered.values() if isinstance(v, Tensor))]
            before = [tensor.clone() for tensor in given]
            made = OPTIMIZERS[name](model, gradient, 0.1, remembered, **options)
            must(made.shape == model.shape, f"it makes shape {tuple(made.shape)} of {(6,)}")
            same = all(map(torch.equal, given, before))
            must(same, "it changes a tensor in place: checkpoints hold on to them")
            model = made
        check_runs("learning", {"optimizer": name, **options})


def check_schedule(schedule: str | Callable[..., Any], **options: Any) -> None:
    """A rate for each round, finite and not negative."""
    with SCHEDULES.lent(schedule) as name:
        for rounds in (1, 10):
            for k in range(1, rounds + 1):
                rate = SCHEDULES[name](k, 0.1, rounds, **options)
                must(math.isfinite(rate) and rate >= 0, f"in round {k} of {rounds} it is {rate}")
