"""What a node on a graph makes of what it hears, by hand: the model is one number."""

from functools import partial

import pytest
import torch

from basil.protocol.graph import aggregate
from basil.protocol.graph.balance import balance
from basil.protocol.graph.graph_round import RoundInput, among
from basil.protocol.graph.nna import nna

from graph_helpers import complete_graph, simulate_graph, values_of
from ring_helpers import Quadratic, plain_node

NAN = float("nan")


def test_momentum_is_damped_and_goes_on_from_round_to_round() -> None:
    """Three nodes that hold 8 and start from 0 agree throughout; rate ½, β = ½.

    g = 0 − 8 = −8, m = −4, x = 2; then g = 2 − 8 = −6, m = −2 − 3 = −5, x = 4.5.
    """
    scheme = partial(nna, momentum=0.5)
    turns, _ = simulate_graph(Quadratic((8.0,) * 3, x0=0.0), complete_graph(3), scheme, 2, 0.5)
    assert values_of(turns, 0) == [2.0, 4.5]


def test_the_distance_within_which_neighbours_are_believed_shrinks() -> None:
    """x = 1, and a neighbour that always sends 1.16; nobody learns.  γ = 0.3, K = 2, α = 0.9.

    0.16 ≤ 0.3 e^−½ · 1 = 0.182, so x = 0.9 + 0.116; then 0.144 > 0.3 e^−1 · 1.016 = 0.112.
    """
    turns, _ = simulate_graph(
        Quadratic((0.0, 0.0), x0=1.0),
        complete_graph(2),
        partial(balance, gamma=0.3, alpha=0.9),
        rounds=2,
        rate=0.0,
        sends={1: 1.16},
    )
    assert values_of(turns, 0) == pytest.approx([1.016, 1.016])


def test_where_few_speak_fewer_than_half_of_them_are_set_aside() -> None:
    compute = Quadratic((0.0,), x0=0.0).compute()
    node, own = plain_node(0, compute), torch.zeros(1)

    def aside(speak: int, byzantine: int) -> int:
        senders = tuple(range(1, speak + 1))
        return among(RoundInput(node, 1, own, senders, (own,) * speak, ()), byzantine)

    assert [aside(speak, 2) for speak in range(7)] == [0, 0, 0, 1, 1, 2, 2]
    assert aside(9, 2) == 2


def test_beside_garbage_the_others_are_still_heard() -> None:
    """Who sends it says nothing that the node did not know: it counts as the node's own."""
    own, models = torch.zeros(1), torch.tensor([[NAN], [0.5], [NAN], [0.5], [0.5]])
    assert float(aggregate.nearest_mean(own, models, keep=4)) == pytest.approx(1.5 / 5)
    # Three values of ½ and two of 0, without the largest and the smallest; and oneself.
    assert float(aggregate.trimmed_mean(own, models, 1)) == pytest.approx(1.0 / 4)
    weights = torch.full((5,), 0.1)
    assert float(aggregate.clipped(own, models, weights, radius=1.0)) == pytest.approx(0.15)


def test_limits_are_within_bounds() -> None:
    """A neighbour just at the radius is near; one whose loss is one's own is no worse."""
    own, models = torch.zeros(1), torch.tensor([[2.0], [2.5]])
    assert float(aggregate.mean_within(own, models, torch.tensor(2.0))) == 2.0
    losses = torch.tensor([1.0, 0.5])
    assert float(aggregate.mean_of_better(own, models, losses, torch.tensor(1.0))) == 2.25
