"""Rings of real processes on loopback."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from basil.peer.members import authority
from basil.recipe import parse, to_toml

from nursery import Nursery, Ring
from peer_helpers import Peer, Rogue, frames_of, free_ports, make_ring, model


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def ring_of(nursery: Nursery, tmp_path: Path) -> Iterator[Callable[..., Ring]]:
    """ring_of(recipe tree) -> a ring whose nodes can be started; they end with the test."""
    made: list[Ring] = []

    def build(tree: dict[str, Any], addresses: list[str] | None = None, name: str = "ring") -> Ring:
        recipe = parse(tree)
        nodes = recipe.ring.nodes
        places = addresses or [f"127.0.0.1:{port}" for port in free_ports(nodes)]
        authority.init(tmp_path / name, to_toml(recipe), places)
        made.append(Ring(nursery, tmp_path / name, nodes))
        return made[-1]

    yield build
    for ring in made:
        ring.end()


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """Folders of four nodes; none is started."""
    return make_ring(tmp_path / "ring", 4)


@pytest.fixture
def peer(ring: Path) -> Iterator[Peer]:
    """Node 1, honest."""
    with Peer(ring, 1) as peer:
        yield peer
        # Whatever a test did: honest nodes still get through.
        with Rogue(ring, 2) as honest:
            assert honest.deliver(1, frames_of(*honest.packed(10**6, model()))) == "taken"


@pytest.fixture
def rogue(ring: Path, peer: Peer) -> Iterator[Rogue]:
    """Node 0, which sends what a test likes."""
    with Rogue(ring, 0) as rogue:
        yield rogue
