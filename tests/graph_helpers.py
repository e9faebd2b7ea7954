"""Schemes on a small graph whose numbers can be followed by hand: the model is one number."""

from collections.abc import Callable, Mapping
from typing import Any

from basil.engine.process import Absence
from basil.engine.simulate import Simulator
from basil.protocol.node import Node
from basil.protocol.requests import Protocol
from basil.topology import Graph, Ring
from basil.topology.graph import uniform

from ring_helpers import Quadratic, Turn, UnitCosts, Witness, plain_node, sender_of


def complete_graph(nodes: int) -> Graph:
    return Graph(tuple(tuple(j for j in range(nodes) if j != i) for i in range(nodes)))


def simulate_graph(
    problem: Quadratic,
    graph: Graph,
    scheme: Callable[[Node], Protocol],
    rounds: int,
    rate: float,
    *,
    sends: Mapping[int, float | None] | None = None,
    lie_from: int = 1,
    timing: UnitCosts | None = None,
    patience: float = 1000.0,
    byzantine: int = 0,
    absences: tuple[Absence, ...] = (),
) -> tuple[list[Turn], Simulator]:
    """Run a scheme on a graph; `sends`: what Byzantine nodes send (None: nothing)."""
    compute = problem.compute()
    n = len(problem.numbers)
    sends = sends or {}
    timing = timing or UnitCosts(0.001, 0.002, 0.01)

    def start(
        node: int, now: float, state: dict[str, Any] | None, rejoin_round: int | None
    ) -> Protocol:
        place = plain_node(
            node,
            compute,
            ring=Ring(range(n)),
            rounds=rounds,
            rate=lambda k: rate,
            patience=patience,
            start=now,
            state=state,
            rejoin_round=rejoin_round,
            neighbours=graph.neighbours[node],
            weights=uniform(graph, node),
            byzantine=byzantine,
        )
        if node not in sends:
            return scheme(place)
        return sender_of(sends[node], place, scheme, lie_from, compute.layout)

    witness = Witness()
    flags = {node: node in sends for node in range(n)}
    simulator = Simulator(flags, start, compute, timing, witness, absences)
    assert simulator.run()
    return witness.turns, simulator


def values_of(turns: list[Turn], node: int) -> list[float]:
    return [turn.value for turn in turns if turn.node == node]
