"""Two processes in one folder: the second is turned away before it touches anything."""

from collections.abc import Callable
from typing import Any

import pytest

from nursery import Ring
from peer_helpers import free_ports

pytestmark = pytest.mark.slow

PAIR: dict[str, Any] = {
    "seed": 1,
    "ring": {"nodes": 2, "byzantine": 0, "connectivity": 1},
    "scheme": {"rounds": 400},
    "learning": {"model": "softmax", "batch": 16, "rate": 0.1},
    "record": {"every": 400},
}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_second_start_leaves_the_running_node_its_marks(
    ring_of: Callable[..., Ring], elsewhere: bool
) -> None:
    """`elsewhere`: at a free port, where nothing but the folder tells that there are two."""
    ring = ring_of(PAIR)
    ring.start_all()
    ring.until_round(2)
    marks, first = ring.node(0) / "state/marks.jsonl", ring.pids[0]
    before = marks.stat().st_ino
    ring.start(0, *(["--listen", f"127.0.0.1:{free_ports(1)[0]}"] if elsewhere else []))
    assert ring.wait([0]) == {0: 2}, ring.log(0)
    assert f"{ring.node(0)} is being written by another process" in ring.log(0)
    ring.pids[0] = first
    reached, size = ring.round(0), marks.stat().st_size
    ring.until_round(reached + 2)
    assert marks.stat().st_ino == before
    assert marks.stat().st_size > size  # what it signs and takes is in the file that has the name
