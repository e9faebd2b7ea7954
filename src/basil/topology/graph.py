"""Undirected graphs: who exchanges models with whom in the graph-based schemes (App. G, H-B).

networkx is no further burden on the compute core: torch itself requires it.  It is loaded when
there is a graph: that takes half a second, and rings have none.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from basil import rng
from basil.errors import UserError
from basil.table import Table, states

if TYPE_CHECKING:
    import networkx as nx

Edges: TypeAlias = Iterable[tuple[int, int]]
MOST_DRAWS = 1000  # of a random graph, before its parameters are held to be wrong


@dataclass(frozen=True)
class Population:
    """Who is to be connected: the nodes in ring order, and which of them are Byzantine."""

    order: tuple[int, ...]
    byzantine: frozenset[int] = frozenset()

    @property
    def size(self) -> int:
        return len(self.order)

    @property
    def benign(self) -> tuple[int, ...]:
        return tuple(sorted(set(self.order) - self.byzantine))


@dataclass(frozen=True)
class Graph:
    """The neighbours of each node, ascending; `redraws`: how often a random one was drawn anew;
    `byzantine`: who of them lies.
    """

    neighbours: tuple[tuple[int, ...], ...]
    redraws: int = 0
    byzantine: frozenset[int] = frozenset()

    def degree(self, node: int) -> int:
        return len(self.neighbours[node])

    @property
    def degrees(self) -> list[int]:
        return [len(mine) for mine in self.neighbours]


Placement: TypeAlias = Callable[["nx.Graph"], frozenset[int]]


def build_graph(
    name: str,
    people: Population,
    seed: int,
    options: dict[str, Any],
    placed: Placement | None = None,
) -> Graph:
    """The graph of this name in which the benign nodes are connected among themselves.

    Byzantine nodes may pass nothing on, so a path through one of them is none.  A random graph that
    is cut is drawn again, each time from the next numbered stream: every node that knows the seed
    arrives at the same one.

    placed: who is Byzantine, from the graph as it would be if nobody was.
    """
    import networkx as nx

    construct = GRAPHS[name]
    draws = MOST_DRAWS if getattr(construct, "random", False) else 1  # worth another
    fault = ""
    for number in range(draws):

        def drawn(people: Population, number: int = number) -> nx.Graph:
            graph = nx.Graph()
            graph.add_nodes_from(range(people.size))
            graph.add_edges_from(construct(people, rng.stream(seed, "graph", number), **options))
            return graph

        if placed is not None:
            people = Population(people.order, placed(drawn(Population(people.order))))
        graph = drawn(people)
        fault = _fault(graph, people)
        if not fault:
            neighbours = tuple(tuple(sorted(graph.adj[i])) for i in range(people.size))
            return Graph(neighbours, number, people.byzantine)
    if draws > 1:
        raise UserError(
            f"graph.name = {name!r}: in {draws} draws {fault}; it needs more edges"
            f" ({', '.join(f'graph.{key}' for key in GRAPHS.options(name))} larger)"
        )
    raise UserError(f"graph.name = {name!r}: {fault}; it needs more edges, or another graph")


def _fault(graph: "nx.Graph", people: Population) -> str:
    import networkx as nx

    alone = sorted(node for node, degree in graph.degree if degree == 0)
    if alone:
        return f"node {alone[0]} has no neighbour"
    if not nx.is_connected(graph.subgraph(people.benign)):
        return "the benign nodes are not connected without the Byzantine ones"
    return ""


@states(random=True)
def erdos_renyi(people: Population, stream: np.random.Generator, *, p: float = 0.4) -> Edges:
    """Any two nodes are connected with probability p, but two Byzantine ones never (App. H-B).

    All pairs are drawn, also those that are not used: who is Byzantine changes no other edge.
    """
    if not 0 < p <= 1:
        raise UserError(f"graph.p = {p}: a probability above 0 and at most 1")
    drawn = stream.random((people.size, people.size)) < p
    return [
        (i, j)
        for i in range(people.size)
        for j in range(i + 1, people.size)
        if drawn[i, j] and not (i in people.byzantine and j in people.byzantine)
    ]


def ring_lattice(people: Population, stream: np.random.Generator, *, k: int = 2) -> Edges:
    """Each node is connected to its k nearest on either side of the ring."""
    most = (people.size - 1) // 2 or 1
    if not 1 <= k <= most:
        raise UserError(
            f"graph.k = {k}: in a ring of {people.size} nodes each has 1 to {most} on either side"
        )
    import networkx as nx

    lattice = nx.circulant_graph(people.size, range(1, k + 1))
    return [(people.order[i], people.order[j]) for i, j in lattice.edges]


def torus(people: Population, stream: np.random.Generator, *, rows: int = 0) -> Edges:
    """A grid of rows × columns whose opposite borders meet; rows = 0: as square as N allows."""
    N = people.size
    factors = [r for r in range(2, N // 2 + 1) if N % r == 0]
    if not factors:
        raise UserError(f'graph.name = "torus": {N} nodes are no rows × columns of at least 2 each')
    if rows and rows not in factors:
        right = ", ".join(map(str, factors))
        raise UserError(f"graph.rows = {rows}: {N} nodes are a torus of {right} rows")
    rows = rows or max(r for r in factors if r * r <= N)
    import networkx as nx

    grid = nx.grid_2d_graph(rows, N // rows, periodic=True)
    place = [[people.order[r * (N // rows) + c] for c in range(N // rows)] for r in range(rows)]
    # Where there are only two rows, up and down lead to the same neighbour.
    return [(place[a][b], place[c][d]) for (a, b), (c, d) in grid.edges if (a, b) != (c, d)]


@states(random=True)
def random_regular(people: Population, stream: np.random.Generator, *, degree: int = 4) -> Edges:
    """Every node has `degree` neighbours, drawn uniformly among all such graphs."""
    N = people.size
    if not 1 <= degree < N:
        raise UserError(f"graph.degree = {degree}: a node of {N} has 1 to {N - 1} neighbours")
    if N * degree % 2:
        raise UserError(
            f"graph.degree = {degree}: with {N} nodes it must be even, every edge having two ends"
        )
    import networkx as nx

    drawn: Edges = nx.random_regular_graph(degree, N, seed=int(stream.integers(2**32))).edges
    return drawn


def complete(people: Population, stream: np.random.Generator) -> Edges:
    """Everybody is connected to everybody."""
    return [(i, j) for i in range(people.size) for j in range(i + 1, people.size)]


def two_worlds(people: Population, stream: np.random.Generator, *, bridges: int = 1) -> Edges:
    """Two cliques of benign nodes, with `bridges` edges from each node to the other clique.

    Node i of the first half is connected to nodes i, i + 1, …, i + bridges − 1 of the second, in a
    circle.  Each Byzantine node is connected to all benign ones (Gaucher, Dieuleveut and Hendrikx
    2025, arXiv 2410.10418: `two_worlds` in their topology.py, with `topology-hyper`).
    """
    half = len(people.benign) // 2
    if half and not 1 <= bridges <= half:
        raise UserError(
            f"graph.bridges = {bridges}: with {len(people.benign)} benign nodes 1 to {half} lead"
            " from each node of one half to the other"
        )
    places = [node for node in people.order if node not in people.byzantine]
    here, there = places[:half], places[half:]
    found = _cliques(here, there)
    found += [(here[i], there[(i + k) % half]) for i in range(half) for k in range(bridges)]
    return found + [(j, node) for j in sorted(people.byzantine) for node in places]


def dumbbell(people: Population, stream: np.random.Generator) -> Edges:
    """Two cliques, Byzantine nodes among them, that one edge between two benign nodes joins.

    (He, Karimireddy and Jaggi 2022, "Byzantine-robust decentralized learning via ClippedGossip".)
    """
    half = people.size // 2
    here, there = people.order[:half], people.order[half:]
    ends = [next((j for j in part if j not in people.byzantine), None) for part in (here, there)]
    joint = [(ends[0], ends[1])] if ends[0] is not None and ends[1] is not None else []
    return _cliques(here, there) + joint


@states(random=True)
def random_geometric(
    people: Population, stream: np.random.Generator, *, radius: float = 0.5
) -> Edges:
    """Nodes at random places of a unit square; any two within `radius` are connected."""
    if not radius > 0:
        raise UserError(f"graph.radius = {radius}: it must be more than 0")
    places = stream.random((people.size, 2))
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    return [(int(i), int(j)) for i, j in np.argwhere(apart <= radius) if i < j]


def _cliques(*groups: Sequence[int]) -> list[tuple[int, int]]:
    return [pair for group in groups for pair in itertools.combinations(group, 2)]


def edges(people: Population, stream: np.random.Generator, *, file: str = "") -> Edges:
    """An own graph: a text file with the two nodes of an edge in each line; # begins a comment."""
    if not file:
        raise UserError('graph.file: name the text file that holds the edges, "a b" in each line')
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"graph.file = {file!r} cannot be read: {error}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        ends = [int(word) for word in words if word.isascii() and word.isdecimal()]
        if len(words) != 2 or len(ends) != 2 or ends[0] == ends[1] or max(ends) >= people.size:
            raise UserError(
                f"{file}, line {number}: {line.strip()!r} is no edge;"
                f" write two different nodes of 0 to {people.size - 1}, such as '0 1'"
            )
        found.append((ends[0], ends[1]))
    return found


GRAPHS: Table[Callable[..., Edges]] = Table(
    "graph",
    {
        "erdos-renyi": erdos_renyi,
        "ring-lattice": ring_lattice,
        "torus": torus,
        "random-regular": random_regular,
        "complete": complete,
        "two-worlds": two_worlds,
        "dumbbell": dumbbell,
        "random-geometric": random_geometric,
        "edges": edges,
    },
    takes=("people", "stream"),
)


def uniform(graph: Graph, node: int) -> dict[int, float]:
    """W_ij = 1/(d_i + 1), for oneself too: the plain mean."""
    return dict.fromkeys(graph.neighbours[node], 1 / (graph.degree(node) + 1))


def metropolis(graph: Graph, node: int) -> dict[int, float]:
    """W_ij = 1/(1 + max(d_i, d_j)), the rest for oneself: doubly stochastic on any graph.

    So the mean over all nodes is kept (Xiao and Boyd, 2004).  A node's neighbours must be told its
    degree.
    """
    mine = graph.degree(node)
    return {j: 1 / (1 + max(mine, graph.degree(j))) for j in graph.neighbours[node]}


WEIGHTS: Table[Callable[[Graph, int], dict[int, float]]] = Table(
    "weights",
    {"uniform": uniform, "metropolis": metropolis},
    group="weights",
    takes=("graph", "node"),
)
