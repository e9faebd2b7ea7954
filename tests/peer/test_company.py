"""A node ends with 0 only if it has had a part in what the ring has learnt."""

from collections.abc import Callable
from typing import Any

import pytest

from basil.peer.run.agreement import HELLO, TRAINING, Hello, decode

from nursery import Ring
from peer_helpers import Peer, free_ports

pytestmark = pytest.mark.slow

TRIO: dict[str, Any] = {
    "seed": 1,
    "ring": {"nodes": 3, "byzantine": 0, "connectivity": 2},
    "scheme": {"rounds": 4},
    "learning": {"model": "softmax", "batch": 16, "rate": 0.1},
    "record": {"every": 4},
}


def test_one_lie_about_the_round_makes_no_node_finish_that_took_no_turn(
    ring_of: Callable[..., Ring],
) -> None:
    """With b = 0 the Byzantine node is believed; but nobody takes that for a finished run."""
    ring = ring_of(TRIO)

    def lie(sender: int, payload: bytes) -> bytes:
        heard = decode(payload)
        assert heard is not None
        return Hello(heard.digest, TRAINING, 10**6, 0.1).encode()

    with Peer(ring.folder, 2) as byzantine:
        byzantine.transport.answers[HELLO] = lie
        ring.start_all("--linger", "0", but=[2])
        assert ring.wait([0, 1]) == {0: 1, 1: 1}, ring.story([0, 1])
    assert "has taken no turn: others say that all 4 rounds are over" in ring.log(0)
    assert not (ring.node(0) / "run/summary.json").exists()
    ring.start_all()
    assert ring.wait() == dict.fromkeys(range(3), 0), ring.story(range(3))


def test_a_node_that_nobody_can_reach_has_not_finished(ring_of: Callable[..., Ring]) -> None:
    """It asks and is answered; but no model comes to it."""
    ring = ring_of({**TRIO, "ring": {"nodes": 2, "byzantine": 0, "connectivity": 1}})
    elsewhere = ("--listen", f"127.0.0.1:{free_ports(1)[0]}", "--linger", "0")
    ring.start(0, *elsewhere)
    ring.start(1)
    assert ring.wait() == {0: 1, 1: 0}, ring.story([0, 1])
    assert "node 0 has heard nobody in all rounds" in ring.log(0).splitlines()[-1]
    ring.start(0, *elsewhere, "--quorum", "1", "--window", "0")
    assert ring.wait([0]) == {0: 0}, ring.log(0)
