"""Byzantine nodes where a graph is densest: who that is, and that the rest stays connected."""

from typing import Any

import networkx as nx
import pytest

from basil.errors import UserError
from basil.experiment import set_up
from basil.recipe import parse
from basil.topology.centrality import degree, pagerank


def test_by_hand() -> None:
    """A star: the hub has r, a leaf l with r = 0.15/4 + 0.85 · 3 l and l = 0.15/4 + 0.85 r / 3."""
    star = nx.star_graph(3)
    assert degree(star) == {0: 3.0, 1: 1.0, 2: 1.0, 3: 1.0}
    ranks = pagerank(star)
    hub = (0.0375 + 2.55 * 0.0375) / (1 - 2.55 * 0.85 / 3)
    assert ranks[0] == pytest.approx(hub)
    assert sum(ranks.values()) == pytest.approx(1)


def placed(placement: str, **more: Any) -> Any:
    tree: dict[str, Any] = {
        "seed": 2,
        "ring": {"nodes": 16, "byzantine": 3, "placement": placement},
        "scheme": {"name": "nna", "rounds": 2},
        "graph": {"p": 0.3},
        "attack": {"name": "backdoor"},
        "learning": {"batch": 16},
    }
    return set_up(parse({**tree, **more})).participants


@pytest.mark.parametrize("placement", ["degree", "pagerank"])
def test_the_most_central_nodes_are_byzantine(placement: str) -> None:
    """As in the graph that would be if nobody was: two Byzantine nodes are not connected here."""
    people = placed(placement)
    assert len(people.byzantine) == 3
    nobody = placed(placement, attack={"name": "none"})
    if people.graph.redraws == nobody.graph.redraws:
        ranked = sorted(nobody.graph.degrees)
        chosen = [nobody.graph.degree(node) for node in people.byzantine]
        assert min(chosen) >= ranked[-5]
    hubs = {node: people.graph.neighbours[node] for node in people.byzantine}
    assert all(people.byzantine.isdisjoint(mine) for mine in hubs.values())
    assert people.facts()["byzantine"] == sorted(people.byzantine)


def test_on_a_ring_all_are_alike_and_chance_decides() -> None:
    ring = {"scheme": {"name": "basil", "rounds": 2}}
    assert placed("degree", **ring).byzantine == placed("random", **ring).byzantine


def test_another_word_is_one_sentence() -> None:
    with pytest.raises(UserError, match="one of random, row, rows, degree, pagerank"):
        placed("hubs")
