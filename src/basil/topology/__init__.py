"""Who talks to whom."""

from basil.topology.graph import GRAPHS, WEIGHTS, Graph, Population, build_graph
from basil.topology.groups import divide
from basil.topology.ring import Ring, agree_on_order

__all__ = [
    "GRAPHS",
    "WEIGHTS",
    "Graph",
    "Population",
    "Ring",
    "agree_on_order",
    "build_graph",
    "divide",
]
