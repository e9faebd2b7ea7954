"""Who talks to whom."""

from basil.topology.centrality import CENTRALITIES
from basil.topology.graph import GRAPHS, WEIGHTS, Graph, Population, build_graph
from basil.topology.groups import Grouping, divide
from basil.topology.ring import Ring, agree_on_order, in_rows

__all__ = [
    "CENTRALITIES",
    "GRAPHS",
    "WEIGHTS",
    "Graph",
    "Grouping",
    "Population",
    "Ring",
    "agree_on_order",
    "build_graph",
    "divide",
    "in_rows",
]
