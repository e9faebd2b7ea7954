"""UBAR by hand (App. G), and its time (App. G-B)."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basil.protocol.graph.ubar import ubar
from basil.theory import Timing as Plan
from basil.theory import ubar_time
from basil.topology import Population, build_graph

from graph_helpers import complete_graph, simulate_graph, values_of
from ring_helpers import Quadratic, UnitCosts

# Node 0 holds a = 4 and the loss ½ (x − 4)²; ρ = ½ keeps 2 of its 4 neighbours; α = ½, η = ¼.
PROBLEM = Quadratic((4.0, 0.0, 0.0, 0.0, 0.0), x0=0.0)
HALF = partial(ubar, keep_fraction=0.5, alpha=0.5)


def node_0(sends: dict[int, float | None], rounds: int) -> list[float]:
    turns, _ = simulate_graph(PROBLEM, complete_graph(5), HALF, rounds, 0.25, sends=sends)
    return values_of(turns, 0)


def test_both_stages() -> None:
    """Nodes 1 to 4 send 1, −½, 3 and 100 in every round."""
    first, second = node_0({1: 1.0, 2: -0.5, 3: 3.0, 4: 100.0}, 2)
    # Round 1, x = 0.  Distances 1, ½, 3, 100: stage 1 keeps nodes 1 and 2.  Losses: own 8,
    # node 1 4.5, node 2 10.125: stage 2 keeps node 1.  R = 1.  ∇f(0) = 0 − 4.
    # x = ½·0 + ½·1 − ¼·(−4) = 1.5
    assert first == 1.5
    # Round 2, x = 1.5.  Distances ½, 2, 1½, 98½: stage 1 keeps nodes 1 and 3.  Losses: own 3.125,
    # node 1 4.5, node 3 ½: stage 2 keeps node 3.  R = 3.  ∇f(1.5) = −2.5.
    # x = ½·1.5 + ½·3 − ¼·(−2.5) = 2.875
    assert second == 2.875


def test_the_mean_of_several() -> None:
    # Distances 1, 2, 5, 5: nodes 1 and 2; losses 4.5 and 2, both under 8.  R = 1.5.
    # x = ½·1.5 + 1 = 1.75
    assert node_0({1: 1.0, 2: 2.0, 3: -5.0, 4: 5.0}, 1) == [1.75]


def test_if_none_is_better_the_least_bad() -> None:
    # Distances 1, ½, 3, 100: nodes 1 and 2; losses 12.5 and 10.125, both above 8.  j* = node 2,
    # which has the lower loss.  x = ½·(−½) + 1 = 0.75
    assert node_0({1: -1.0, 2: -0.5, 3: 3.0, 4: 100.0}, 1) == [0.75]


def test_a_tie_in_the_loss_is_no_worse() -> None:
    # x⁰ itself, from node 1: distance 0, loss 8 ≤ 8.  Node 2 is second, and worse.  R = 0: x = 1.
    assert node_0({1: 0.0, 2: -0.5, 3: 3.0, 4: 100.0}, 1) == [1.0]


def test_garbage_is_not_near_and_not_good() -> None:
    nan, inf = float("nan"), float("inf")
    # Only node 3 is left of use; stage 1 keeps it and one that cannot be used.
    assert node_0({1: nan, 2: inf, 3: 1.0, 4: -inf}, 1) == [1.5]
    # Nothing at all: R is one's own model.  x = 0 + 1.
    assert node_0({1: nan, 2: inf, 3: nan, 4: -inf}, 1) == [1.0]


def test_silence_is_waited_for_once_a_round() -> None:
    assert node_0({1: 1.0, 2: None, 3: None, 4: None}, 1) == [1.5]
    assert node_0(dict.fromkeys((1, 2, 3, 4)), 2) == [1.0, 1.75]  # plain SGD


@settings(max_examples=30, deadline=None)
@given(
    half=st.integers(3, 5),
    degree=st.integers(2, 5),
    rounds=st.integers(1, 3),
    costs=st.tuples(*[st.integers(1, 50)] * 5),
    keep=st.floats(0.05, 1),
)
def test_rounds_end_when_the_paper_says(
    half: int, degree: int, rounds: int, costs: tuple[int, ...], keep: float
) -> None:
    """K (T_dist + T_perf + T_agg + T_SGD + S T_comm), each node with S neighbours."""
    n = 2 * half
    forward, step, link, distance, average = map(float, costs)
    graph = build_graph("random-regular", Population(tuple(range(n))), 0, {"degree": degree})
    turns, simulator = simulate_graph(
        Quadratic(tuple(map(float, range(n))), x0=0.5),
        graph,
        partial(ubar, keep_fraction=keep),
        rounds,
        0.1,
        timing=UnitCosts(forward, step, link, 0.0, distance, average),
        patience=1e6,
    )
    scored = max(1, int(keep * degree)) + 1  # and the node's own
    plan = Plan(forward, step, 32 / link / 1e6, distance=degree * distance, aggregate=average)
    for k in range(1, rounds + 1):
        expected = ubar_time(plan, 1, neighbours=degree, scored=scored, rounds=k)
        assert [t.time for t in turns if t.round == k] == pytest.approx([expected] * n)
    done = simulator.done
    assert done.messages == n * degree * rounds
    assert done.distances == n * degree * rounds
    assert done.evaluations == n * scored * rounds
    assert done.steps == n * rounds
