"""Graphs: what every one of them promises, and the sentence when it cannot."""

from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basil.errors import UserError
from basil.testing.pieces import check_edges
from basil.topology import GRAPHS, WEIGHTS, Graph, Population, agree_on_order, build_graph

NAMES = [name for name in GRAPHS if name != "edges"]


def people(n: int, byzantine: int = 0, seed: int = 0) -> Population:
    order = agree_on_order(range(n), seed)
    return Population(order, frozenset(order[:byzantine]))


def as_networkx(graph: Graph) -> nx.Graph:
    return nx.Graph([(i, j) for i, mine in enumerate(graph.neighbours) for j in mine])


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    half=st.integers(4, 12),
    byzantine=st.integers(0, 1),
    seed=st.integers(0, 9),
)
def test_every_graph_is_symmetric_connected_and_the_same_again(
    name: str, half: int, byzantine: int, seed: int
) -> None:
    who = people(2 * half, byzantine, seed)
    check_edges(name, who, seed)
    graph = build_graph(name, who, seed, {})
    assert nx.is_connected(as_networkx(graph).subgraph(who.benign))


@settings(max_examples=40, deadline=None)
@given(n=st.integers(6, 30), seed=st.integers(0, 9), weights=st.sampled_from(list(WEIGHTS)))
def test_weights_leave_something_for_oneself(n: int, seed: int, weights: str) -> None:
    graph = build_graph("erdos-renyi", people(n), seed, {})
    rows = [WEIGHTS[weights](graph, i) for i in range(n)]
    for row in rows:
        assert min(row.values()) > 0
        assert sum(row.values()) < 1
    if weights == "metropolis":  # symmetric, hence doubly stochastic
        assert all(rows[j][i] == w for i, row in enumerate(rows) for j, w in row.items())


def test_erdos_renyi_has_its_probability_and_no_edge_among_byzantine_nodes() -> None:
    """App. H-B: 0.4 between benign nodes, and between benign and Byzantine ones."""
    who = people(100, 33)
    graph = as_networkx(build_graph("erdos-renyi", who, 1, {"p": 0.4}))
    byzantine, benign = who.byzantine, who.benign
    assert graph.subgraph(byzantine).number_of_edges() == 0
    assert graph.subgraph(benign).number_of_edges() / (67 * 66 / 2) == pytest.approx(0.4, abs=0.03)
    mixed = sum((i in byzantine) != (j in byzantine) for i, j in graph.edges)
    assert mixed / (67 * 33) == pytest.approx(0.4, abs=0.03)


def test_two_worlds_are_two_cliques_with_bridges_and_liars_in_both() -> None:
    """16 benign nodes, 6 bridges, 1 Byzantine node: the graph of Gaucher et al.'s CIFAR-10 runs."""
    who = people(17, 1)
    graph = as_networkx(build_graph("two-worlds", who, 0, {"bridges": 6}))
    (lying,) = who.byzantine
    assert set(graph[lying]) == set(who.benign)
    honest = graph.subgraph(who.benign)
    assert sorted(dict(honest.degree).values()) == [13] * 16  # 7 at home, 6 abroad
    order = [node for node in who.order if node != lying]
    here, there = order[:8], order[8:]
    for half in (here, there):
        assert honest.subgraph(half).number_of_edges() == 28
    assert set(honest[here[5]]) - set(here) == {there[i] for i in (5, 6, 7, 0, 1, 2)}


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("two-worlds", {"bridges": 9}, r"graph.bridges = 9: with 16 benign nodes 1 to 8 lead"),
        ("two-worlds", {"bridges": 0}, r"graph.bridges = 0"),
        ("random-geometric", {"radius": 0.0}, r"graph.radius = 0.0: it must be more than 0"),
    ],
)
def test_graphs_that_cannot_be(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        build_graph(name, people(17, 1), 0, options)


def test_a_dumbbell_hangs_by_one_edge() -> None:
    who = people(10, 3)
    graph = as_networkx(build_graph("dumbbell", who, 0, {}))
    (bridge,) = nx.bridges(graph)
    assert who.byzantine.isdisjoint(bridge)
    assert graph.number_of_edges() == 10 + 10 + 1


def test_neighbours_in_a_plane_are_near() -> None:
    few = as_networkx(build_graph("random-geometric", people(30), 0, {"radius": 0.3}))
    many = as_networkx(build_graph("random-geometric", people(30), 0, {"radius": 0.6}))
    assert few.number_of_edges() < many.number_of_edges()
    everybody = as_networkx(build_graph("random-geometric", people(30), 0, {"radius": 1.5}))
    assert everybody.number_of_edges() == 30 * 29 / 2


def test_who_lies_changes_no_other_edge() -> None:
    without = set(as_networkx(build_graph("erdos-renyi", people(40), 2, {})).edges)
    with_byzantine = build_graph("erdos-renyi", people(40, 10), 2, {})
    assert with_byzantine.redraws == 0
    assert {tuple(sorted(e)) for e in as_networkx(with_byzantine).edges} < {
        tuple(sorted(e)) for e in without
    }


def test_a_graph_that_is_cut_is_drawn_again() -> None:
    found = [build_graph("erdos-renyi", people(8), seed, {"p": 0.3}) for seed in range(20)]
    assert max(graph.redraws for graph in found) > 0
    assert len({graph.neighbours for graph in found}) == 20


def test_shapes() -> None:
    square = Population(tuple(range(12)))
    torus = build_graph("torus", square, 0, {"rows": 3})
    assert torus.neighbours[0] == (1, 3, 4, 8)
    assert set(torus.degrees) == {4}
    assert set(build_graph("torus", square, 0, {"rows": 2}).degrees) == {3}  # up is down
    lattice = build_graph("ring-lattice", square, 0, {"k": 2})
    assert lattice.neighbours[0] == (1, 2, 10, 11)
    assert set(build_graph("random-regular", square, 0, {"degree": 5}).degrees) == {5}
    assert set(build_graph("complete", square, 0, {}).degrees) == {11}


def test_own_edges(tmp_path: Path) -> None:
    file = tmp_path / "edges.txt"
    file.write_text("# a line\n0 1\n1 2  # the middle\n\n2 3\n1 0\n")
    graph = build_graph("edges", Population((0, 1, 2, 3)), 0, {"file": str(file)})
    assert graph.neighbours == ((1,), (0, 2), (1, 3), (2,))


@pytest.mark.parametrize("line", ["0", "0 1 2", "0 x", "0 0", "0 4", "-1 2", "0 ²"])
def test_a_bad_edge_is_said(tmp_path: Path, line: str) -> None:
    file = tmp_path / "edges.txt"
    file.write_text(f"0 1\n{line}\n")
    with pytest.raises(UserError, match=r"line 2: .* is no edge; write two different nodes of 0"):
        build_graph("edges", Population((0, 1, 2, 3)), 0, {"file": str(file)})


@pytest.mark.parametrize(
    ("name", "options", "n", "sentence"),
    [
        ("erdos-renyi", {"p": 0.0}, 10, "above 0 and at most 1"),
        ("erdos-renyi", {"p": 0.01}, 30, "in 1000 draws .* needs more edges .graph.p larger"),
        ("random-regular", {"degree": 1}, 10, "not connected .*graph.degree larger"),
        ("random-regular", {"degree": 3}, 9, "must be even"),
        ("random-regular", {"degree": 9}, 9, "1 to 8 neighbours"),
        ("ring-lattice", {"k": 5}, 10, "1 to 4 on either side"),
        ("torus", {}, 13, "13 nodes are no rows × columns"),
        ("torus", {"rows": 5}, 12, "a torus of 2, 3, 4, 6 rows"),
        ("edges", {"file": ""}, 4, "name the text file"),
        ("edges", {"file": "/no/such"}, 4, "cannot be read"),
    ],
)
def test_wrong_parameters_are_said(name: str, options: Any, n: int, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        build_graph(name, Population(tuple(range(n))), 0, options)


def test_a_byzantine_node_that_cuts_the_lattice_is_said() -> None:
    """With k = 1 two Byzantine nodes cut the ring, and no other draw would help."""
    who = Population(tuple(range(8)), frozenset({0, 4}))
    with pytest.raises(UserError, match=r"benign nodes are not connected.*another graph"):
        build_graph("ring-lattice", who, 0, {"k": 1})


def test_a_node_without_neighbours_is_said(tmp_path: Path) -> None:
    file = tmp_path / "edges.txt"
    file.write_text("0 1\n1 2\n")
    with pytest.raises(UserError, match="node 3 has no neighbour"):
        build_graph("edges", Population((0, 1, 2, 3)), 0, {"file": str(file)})
