"""How much a node of a graph can spread: where an attacker would rather stand.

Syros et al., "Backdoor attacks in peer-to-peer federated learning" (arXiv 2301.09732), place
Byzantine nodes in this way.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import networkx as nx

DAMPING, LAPS = 0.85, 100  # PageRank's usual share of steps along an edge; 0.85¹⁰⁰ is 10⁻⁷


def degree(graph: "nx.Graph") -> dict[int, float]:
    """How many neighbours it has."""
    return {node: float(neighbours) for node, neighbours in graph.degree}


def pagerank(graph: "nx.Graph") -> dict[int, float]:
    """How often a walker is there who goes along a random edge, or now and then anywhere.

    (networkx's needs scipy.)
    """
    nodes = sorted(graph)
    adjacency = np.array([[float(graph.has_edge(i, j)) for j in nodes] for i in nodes])
    steps = adjacency / np.maximum(1, adjacency.sum(1, keepdims=True))
    rank = np.full(len(nodes), 1 / len(nodes))
    for _ in range(LAPS):
        rank = (1 - DAMPING) / len(nodes) + DAMPING * rank @ steps
    return dict(zip(nodes, rank.tolist(), strict=True))


CENTRALITIES: dict[str, Callable[["nx.Graph"], dict[int, float]]] = {
    "degree": degree,
    "pagerank": pagerank,
}
