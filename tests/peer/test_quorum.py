"""A node that is nearly alone waits for the others, and ends if they do not come."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from basil.experiment import set_up
from basil.recipe import parse

from nursery import Ring

pytestmark = pytest.mark.slow

PAIR: dict[str, Any] = {
    "seed": 1,
    "ring": {"nodes": 2, "byzantine": 0, "connectivity": 1},
    "scheme": {"rounds": 40},
    "learning": {"model": "softmax", "batch": 16, "rate": 0.1},
    "record": {"every": 40},
}


def status(ring: Ring, i: int) -> dict[str, Any]:
    return json.loads((ring.node(i) / "status.json").read_text())


def test_a_node_that_nobody_joins_does_not_train_by_itself(ring_of: Callable[..., Ring]) -> None:
    ring = ring_of(PAIR)
    ring.start(0, "--window", "1", "--alone", "4")
    ring.until(lambda: "waiting missing=[1] quorum=2" in ring.log(0))
    assert status(ring, 0)["phase"] == "waiting"
    assert status(ring, 0)["missing"] == [1]
    assert ring.wait([0]) == {0: 1}
    assert ring.log(0).splitlines()[-1] == (
        "basil: node 0 has waited 4 s for node 1: 1 of 2 are here, and it takes 2 to train."
        " Start it again when they are, or with a smaller --quorum"
    )
    assert ring.round(0) == 0
    ring.start_all()
    assert ring.wait() == {0: 0, 1: 0}, ring.story([0, 1])


def test_who_wants_to_may_train_alone(ring_of: Callable[..., Ring]) -> None:
    ring = ring_of({**PAIR, "scheme": {"rounds": 3}})
    ring.start(0, "--window", "1", "--quorum", "1", "--linger", "0")
    assert ring.wait([0]) == {0: 0}, ring.log(0)


def test_a_node_that_is_left_alone_waits_and_goes_on_with_the_other(
    ring_of: Callable[..., Ring],
) -> None:
    ring = ring_of(PAIR)
    ring.start_all()
    ring.until_round(3)
    ring.kill(1)
    ring.until(lambda: status(ring, 0)["phase"] == "waiting")
    alone = ring.round(0)
    ring.start(1)
    assert ring.wait() == {0: 0, 1: 0}, ring.story([0, 1])
    assert alone < 20
    rows = (ring.node(0) / "run/selections.csv").read_text().splitlines()[1:]
    heard = [row for row in rows if int(row.split(",")[0]) > alone + 2 and row.split(",")[2] == "1"]
    assert len(heard) > 10  # from then on it went on from the other's models


def test_a_node_that_is_left_alone_ends_and_both_can_be_started_again(
    ring_of: Callable[..., Ring],
) -> None:
    ring = ring_of(PAIR)
    ring.start_all("--alone", "3")
    ring.until_round(3)
    ring.kill(1)
    assert ring.wait([0]) == {0: 1}
    assert "waited 3 s for node 1" in ring.log(0).splitlines()[-1]
    assert 3 <= ring.round(0) < 20
    ring.start_all()
    assert ring.wait() == {0: 0, 1: 0}, ring.story([0, 1])
    assert [ring.round(i) for i in (0, 1)] == [40, 40]


def test_a_node_whose_disk_was_full_at_the_last_line_finishes_though_all_have_gone(
    ring_of: Callable[..., Ring],
) -> None:
    """What it trained is in its checkpoint: it needs nobody for the rest."""
    ring = ring_of({**PAIR, "scheme": {"rounds": 6}})
    ring.start(0, "--linger", "0", full=True)
    ring.start(1, "--linger", "0", "--quorum", "1")  # the other may be gone before its last turn
    assert ring.wait() == {0: 2, 1: 0}, ring.story([0, 1])
    last = ring.log(0).splitlines()[-1]
    assert f"{ring.node(0)} cannot be written: No space left on device" in last
    ring.start(0, "--window", "1", "--linger", "0")
    assert ring.wait([0]) == {0: 0}, ring.log(0)
    assert (ring.node(0) / "run/models.safetensors").exists()


def test_a_node_whose_predecessors_may_all_be_byzantine_waits_for_another(
    ring_of: Callable[..., Ring],
) -> None:
    """Three of five are a quorum; but of node 0's two predecessors the one that is here may lie."""
    recipe = {**PAIR, "ring": {"nodes": 5, "byzantine": 1, "connectivity": 2}}
    ring, order = ring_of(recipe), set_up(parse(recipe)).participants.ring
    cut_off, nearest = order.behind(0, 2)
    last = order.ahead(0, 2)[-1]
    for i in (nearest, last):
        ring.start(i, "--quorum", "3")
    ring.start(0, "--alone", "5")
    ring.until(lambda: f"waiting missing=[{cut_off}] quorum=3" in ring.log(0))
    assert ring.wait([0]) == {0: 1}
    assert ring.log(0).splitlines()[-1] == (
        f"basil: node 0 has waited 5 s for node {cut_off}: all others that it takes models from may"
        " be Byzantine. Start it again when they are here, or with --quorum 3"
    )
    assert ring.round(0) == 0
