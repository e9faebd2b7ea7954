"""Attacks meet a scheme in which all nodes send to all others at the same moment."""

from typing import Any

import pytest
import torch

from basil.attack import ATTACKS, ArmedAttack, Knowledge, adversary
from basil.engine.durations import Durations
from basil.engine.simulate import Simulator
from basil.learning.promises import Selection
from basil.protocol.node import Node
from basil.protocol.requests import Arrival, Checkpoint, Protocol, Receive, Record, Send, Train
from basil.topology import Ring

from ring_helpers import Quadratic, Witness, plain_node

NODES, ROUNDS = 5, 3


def gossip(node: Node) -> Protocol:
    """Train one's own model, send it to all, go on from the average of all."""
    others = tuple(i for i in node.on_ring.ring.order if i != node.id)
    model = node.initial_model
    for k in range(1, ROUNDS + 1):
        model = yield Train(model, node.draw(k), node.rate(k), lambda: 0)
        yield Record(k, model, (None,), Selection([model], 0))
        yield Send(others, k, model)
        yield Checkpoint(k + 1, dict)
        heard = [model]
        for _ in others:
            arrival = yield Receive(1e9)
            assert isinstance(arrival, Arrival)
            heard.append(arrival.body)
        model = torch.stack(heard).mean(0)


def simulate(byzantine: frozenset[int], attack: str = "dissensus") -> dict[int, list[float]]:
    """What each benign node has trained in each round."""
    compute = Quadratic((1.0, 2.0, 3.0, 4.0, 5.0), x0=0.0).compute()
    shared: dict[str, Any] = {}

    def start(node: int, now: float, state: Any, rejoin_round: int | None) -> Protocol:
        place = plain_node(node, compute, ring=Ring(range(NODES)), rounds=ROUNDS)
        if node not in byzantine:
            return gossip(place)
        options = ATTACKS.options(attack)
        everybody = dict.fromkeys(range(NODES), 1 / NODES)
        known = Knowledge(compute.layout, 0, shared, byzantine, lambda j: everybody)
        return adversary(place, gossip, ArmedAttack(ATTACKS[attack], options), known)

    witness = Witness()
    flags = {node: node in byzantine for node in range(NODES)}
    assert Simulator(flags, start, compute, Durations(0.001, 0.002, 100.0), witness).run()
    return {
        n: [t.value for t in witness.turns if t.node == n]
        for n in range(NODES)
        if n not in byzantine
    }


@pytest.mark.parametrize("byzantine", [{0}, {2}, {4}, {0, 3}])
def test_dissensus_keeps_everybody_to_himself(byzantine: set[int]) -> None:
    """With ε = 1 an average moves nobody: each node goes on from what it trained itself.

    That needs the Byzantine nodes to see what all others send in this very round, whoever is first.
    """
    for node, values in simulate(frozenset(byzantine)).items():
        x, alone = 0.0, []
        for _ in range(ROUNDS):  # ½ the way to its own number a_i = i + 1 each time
            x += 0.5 * (node + 1 - x)
            alone.append(x)
        assert values == pytest.approx(alone, abs=1e-5)


def test_without_byzantine_nodes_they_agree() -> None:
    found = simulate(frozenset())
    spread = [max(v) - min(v) for v in zip(*found.values(), strict=True)]
    assert spread == pytest.approx([2.0, 2.0, 2.0])  # ½ of the numbers' own, from one average


NOT_HERE = ("silent", "betrayal", "rescale", "permute", "ballast", "twins")  # the last: no units


@pytest.mark.parametrize("attack", [a for a in ATTACKS if a not in NOT_HERE])
def test_every_attack_can_be_gossiped(attack: str) -> None:
    assert set(simulate(frozenset({1, 3}), attack)) == {0, 2, 4}
