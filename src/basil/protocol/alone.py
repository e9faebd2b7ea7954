"""Training without anybody else: the bounds between which decentralised schemes lie."""

from dataclasses import replace

from basil.protocol.graph.graph_round import RoundInput, Step, gossip
from basil.protocol.node import GraphPlace, Node
from basil.protocol.requests import Protocol


def local(node: Node) -> Protocol:
    """Each node trains on its own data and talks to nobody: what working together must beat."""
    return gossip(replace(node, on_graph=GraphPlace()), _train)


def centralised(node: Node) -> Protocol:
    """One model on the data of all benign nodes in one place: what no scheme is expected to beat.

    One node does all the work, on batches drawn from all benign data: as many SGD steps in a round
    as the benign nodes take together.  Nothing is sent; each step takes its time, one after the
    other, as on a ring.
    """
    return gossip(replace(node, on_graph=GraphPlace()), _train)


def _train(heard: RoundInput) -> Step:
    return (yield from heard.train(heard.own))
