"""The synchronous round on a graph: who is waited for, how long, and what is refused."""

import itertools
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from basil.engine.process import Absence
from basil.protocol.graph.g_plain import g_plain
from basil.protocol.graph.ubar import ubar
from basil.protocol.node import GraphPlace, Node, RingPlace
from basil.protocol.requests import Arrival, Checkpoint, Missing, Receive, Record, Send, Train
from basil.topology import Graph, Population, Ring, build_graph

from graph_helpers import simulate_graph
from ring_helpers import Quadratic, UnitCosts

RATE = 0.25


def literal(
    numbers: tuple[float, ...], graph: Graph, rounds: int, quiet: frozenset[int] = frozenset()
) -> dict[tuple[int, int], float]:
    """G-plain as §VI-A says it, for all nodes at once; those in `quiet` send nothing."""
    x = dict.fromkeys(range(len(numbers)), 0.5)
    found = {}
    for k in range(1, rounds + 1):
        mean = {}
        for i in x:
            heard = [x[i], *(x[j] for j in graph.neighbours[i] if j not in quiet)]
            mean[i] = sum(heard) / len(heard)
        x = {i: m - RATE * (m - numbers[i]) for i, m in mean.items()}
        found.update({(k, i): value for i, value in x.items()})
    return found


# Forward, step, link, distance, average: only a link must take some time.
COSTS = st.tuples(*[st.integers(0 if which != 2 else 1, 40) for which in range(5)])


@settings(max_examples=40, deadline=None)
@given(n=st.integers(4, 14), seed=st.integers(0, 99), costs=COSTS, rounds=st.integers(1, 8))
def test_among_honest_nodes_nobody_is_ever_given_up(
    n: int, seed: int, costs: tuple[int, ...], rounds: int
) -> None:
    """Not with a single round's time for patience either, whatever the graph and the costs."""
    graph = build_graph("erdos-renyi", Population(tuple(range(n))), seed, {"p": 0.35})
    forward, step, link, distance, average = map(float, costs)
    timing = UnitCosts(forward, step, link, 0.0, distance, average)
    numbers = tuple(map(float, range(n)))
    turns, _ = simulate_graph(
        Quadratic(numbers, x0=0.5),
        graph,
        g_plain,
        rounds,
        RATE,
        timing=timing,
        patience=timing.exchange(1, max(graph.degrees), 1),
    )
    assert {(t.round, t.node): t.value for t in turns} == pytest.approx(
        literal(numbers, graph, rounds), rel=1e-4
    )


@settings(max_examples=40, deadline=None)
@given(n=st.integers(5, 12), seed=st.integers(0, 99), costs=COSTS, first=st.integers(1, 4))
def test_silence_costs_a_deadline_a_round_and_does_not_spread(
    n: int, seed: int, costs: tuple[int, ...], first: int
) -> None:
    """Node 0 falls silent.  Whoever waits for it is late; nobody gives up the late ones."""
    rounds = 6
    graph = build_graph(
        "erdos-renyi", Population(tuple(range(n)), frozenset({0})), seed, {"p": 0.5}
    )
    forward, step, link, distance, average = map(float, costs)
    timing = UnitCosts(forward, step, link, 0.0, distance, average)
    longest = timing.exchange(1, max(graph.degrees), 1) or 1.0
    patience = 3 * longest
    turns, _ = simulate_graph(
        Quadratic(tuple(map(float, range(n))), x0=0.5),
        graph,
        g_plain,
        rounds,
        RATE,
        sends={0: None},
        lie_from=first,
        timing=timing,
        patience=patience,
    )
    ends = [max(t.time for t in turns if t.round == k) for k in range(1, rounds + 1)]
    if first == 1:  # silent from the start: all others hear each other throughout
        expected = literal(tuple(map(float, range(n))), graph, rounds, frozenset({0}))
        for t in turns:
            if t.node != 0:
                assert t.value == pytest.approx(expected[t.round, t.node], rel=1e-4)
    # Once twice the patience, when it falls silent, then once a round: not the run.
    assert ends[-1] <= (rounds + 2) * (patience + longest)
    for before, after in itertools.pairwise(ends[first:]):
        assert after - before <= patience + 2 * longest


def test_an_absent_node_misses_its_rounds_and_comes_back() -> None:
    graph = build_graph("complete", Population(tuple(range(5))), 0, {})
    turns, _ = simulate_graph(
        Quadratic((1.0, 2.0, 3.0, 4.0, 5.0), x0=0.5),
        graph,
        g_plain,
        6,
        RATE,
        timing=UnitCosts(1.0, 10.0, 100.0),
        patience=4000.0,
        absences=(Absence(2, leaves=3, returns=5), Absence(4, leaves=1, returns=2)),
    )
    rounds_of = {i: [t.round for t in turns if t.node == i] for i in range(5)}
    assert rounds_of == {
        0: [1, 2, 3, 4, 5, 6],
        1: [1, 2, 3, 4, 5, 6],
        2: [1, 2, 5, 6],
        3: [1, 2, 3, 4, 5, 6],
        4: [2, 3, 4, 5, 6],
    }
    value = {(t.round, t.node): t.value for t in turns}
    # While node 2 is away the others average four models, and five again when it is back.
    others = [value[2, i] for i in (0, 1, 3, 4)]
    assert value[3, 0] == pytest.approx(0.75 * sum(others) / 4 + 0.25 * 1.0)
    back = [value[4, 0], value[4, 1], value[2, 2], value[4, 3], value[4, 4]]
    for i in range(5):
        assert value[5, i] == pytest.approx(0.75 * sum(back) / 5 + 0.25 * (i + 1), rel=1e-5)


class Script:
    """Drives one node's generator by hand, as an engine would."""

    def __init__(self, **settings: Any) -> None:
        self.node = Node(
            id=0,
            rounds=9,
            initial_model=torch.zeros(1),
            draw=lambda k: (),
            rate=lambda k: 0.1,
            key=lambda k: 0,
            patience=10.0,
            on_ring=RingPlace(Ring(range(4)), connectivity=1, reach=1, rule=None),
            on_graph=GraphPlace((1, 2, 3), dict.fromkeys((1, 2, 3), 0.25)),
            **settings,
        )
        self.protocol = g_plain(self.node)
        self.request: Any = next(self.protocol)
        self.trained: list[float] = []

    def answer(self, answer: Any) -> None:
        """Answer, and go on to the next Receive.  Training changes nothing here."""
        self.request = self.protocol.send(answer)
        while not isinstance(self.request, Receive):
            match self.request:
                case Send() as send:
                    self.sent = send
                    reply: Any = 100.0 * send.round
                case Checkpoint() as checkpoint:
                    self.state = checkpoint.state()
                    reply = None
                case Train() as train:
                    reply = train.model
                    assert isinstance(train.model, Tensor)
                    self.trained.append(float(train.model))
                case Record():
                    reply = None
                case work:
                    reply = work.work()
            self.request = self.protocol.send(reply)

    def begin(self) -> None:
        self.answer(0.0) if isinstance(self.request, Send) else None

    def hear(self, sender: int, k: int, value: float) -> None:
        self.answer(Arrival(sender, k, torch.tensor([value]), 0.0))


def test_early_models_wait_old_ones_are_refused_and_a_sender_counts_once() -> None:
    script = Script()
    script.begin()
    script.hear(1, 1, 4.0)
    script.hear(1, 1, 1000.0)  # a second time
    script.hear(2, 2, 8.0)  # of the next round: so node 2 is not waited for any more
    script.hear(9, 1, 1000.0)  # no neighbour
    script.hear(3, 99, 1000.0)  # too far ahead to be kept
    assert script.trained == []
    script.hear(3, 1, 8.0)
    assert script.trained == [4.0]  # (0 + 4 + 8) / 3
    assert script.sent.round == 2
    script.hear(1, 1, 1000.0)  # of a round that is over
    script.hear(1, 2, 0.0)
    script.hear(3, 2, 0.0)
    assert script.trained == [4.0, 3.0]  # (4 + 0 + 8 + 0) / 4: the early one has counted


def test_who_spoke_before_is_given_twice_the_time() -> None:
    script = Script()
    script.begin()
    assert script.request.until == 10.0  # nobody has spoken yet
    script.hear(1, 1, 0.0)
    script.answer(Missing(10.0))
    assert script.request.until == 220.0  # round 2 was sent at 200: node 1 may be late
    script.hear(1, 2, 0.0)
    assert script.request.until == 210.0  # nodes 2 and 3 were silent already
    script.hear(2, 1, 0.0)  # too late for its round, but a sign of life
    assert script.request.until == 220.0


def test_a_node_goes_on_from_its_state() -> None:
    script = Script()
    script.begin()
    for sender in (1, 2, 3):
        script.hear(sender, 1, 4.0)
    script.hear(1, 3, 5.0)
    again = Script(state=script.state)
    assert isinstance(again.request, Receive)  # its model of round 2 is sent: not a second time
    assert again.request.until == 220.0
    for sender in (1, 2, 3):
        again.hear(sender, 2, 3.0)
    assert again.trained == [3.0]


def test_ubar_without_neighbours_that_speak_trains_alone() -> None:
    graph = Graph(((1,), (0,)))
    turns, _ = simulate_graph(
        Quadratic((4.0, 0.0), x0=0.0), graph, partial(ubar), 2, RATE, sends={1: None}
    )
    assert [t.value for t in turns if t.node == 0] == [1.0, 1.75]
