"""Members that are added while a run goes on: it goes on as it began."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from basil.peer.members import authority
from basil.peer.members.roster import load_roster
from basil.peer.run.local_ring import warm_up
from basil.peer.run.peer import Peer
from basil.peer.run.start import Options

from nursery import Ring
from peer_helpers import free_ports, make_ring

RING: dict[str, Any] = {
    "seed": 1,
    "ring": {"nodes": 3, "byzantine": 0, "connectivity": 2},
    "scheme": {"rounds": 30},
    "learning": {"model": "softmax", "batch": 16, "rate": 0.1},
    "record": {"every": 30},
}


def grow(ring: Path) -> None:
    authority.add(ring, f"127.0.0.1:{free_ports(1)[0]}")


@pytest.mark.slow
def test_nodes_that_are_restarted_after_a_member_was_added_go_on_with_their_run(
    ring_of: Callable[..., Ring],
) -> None:
    ring = ring_of(RING)
    ring.start_all()
    ring.until_round(2)
    ring.kill(1)
    grow(ring.folder)
    ring.start(1)
    ring.until_round(4)
    ring.kill(2)
    ring.start(2)
    assert ring.wait() == dict.fromkeys(range(3), 0), ring.story(range(3))
    assert all(load_roster(ring.node(i)).version == 2 for i in range(3))
    for i in range(3):
        facts = json.loads((ring.node(i) / "run/run.json").read_text())
        assert sorted(facts["order"]) == [0, 1, 2]
        assert ring.round(i) == 30
    assert warm_up(ring.folder).ring.nodes == 3


def test_a_run_that_was_begun_keeps_its_order_and_the_next_one_has_the_larger(
    tmp_path: Path,
) -> None:
    ring = make_ring(tmp_path / "ring", 3)

    def node() -> Peer:
        made = Peer(Options(ring / "node-0", device="cpu"))
        made.transport.stop()
        return made

    first = node()
    grow(ring)
    assert node().recipe.ring.nodes == 4  # nothing was begun
    (ring / "node-0/state/roster.toml").write_bytes(first.transport.roster.sealed)
    again = node()
    assert again.recipe == first.recipe
    assert again.participants.ring.order == first.participants.ring.order
    assert again.transport.roster.version == 2
    assert again.handshake.others == {1, 2}
    assert again.quorum.needed == 2
    assert not again._expected(3, "train", "rejoin")
    assert again._expected(2, "train", "rejoin")
    (ring / "node-0/state/roster.toml").unlink()
    assert node().handshake.others == {1, 2, 3}
