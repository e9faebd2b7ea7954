"""Processes that die, freeze, come back, lose their disk, their clock or their link.

Whatever happens to one node, the others finish all rounds, and their worst accuracy stays near what
the simulator says of the same ring.  The node itself finishes too where it can.
"""

import json
import random
import resource
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from basil.experiment import Simulation, set_up
from basil.peer.members import authority
from basil.peer.members.roster import ROSTER, load_roster
from basil.peer.run.agreement import JOINING
from basil.recipe import parse

from bad_link import BadLink
from nursery import Ring
from peer_helpers import free_ports

pytestmark = pytest.mark.slow

N, ROUNDS, VICTIM = 6, 12, 3
OTHERS = [i for i in range(N) if i != VICTIM]
SMALL: dict[str, Any] = {
    "seed": 1,
    "ring": {"nodes": N, "byzantine": 1, "connectivity": 2, "dropouts": 2},
    "scheme": {"rounds": ROUNDS},
    "learning": {"model": "softmax", "batch": 32, "rate": 0.1},
    "record": {"every": ROUNDS},
}
NEAR = 0.05
ANYBODY = ("--quorum", "1")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> float:
    """The worst accuracy where the victim is away from round 4 on: the most that one can take."""
    away = {**SMALL["ring"], "events": [{"node": VICTIM, "leaves": 4}]}
    folder = tmp_path_factory.mktemp("simulated") / "run"
    summary = Simulation(set_up(parse({**SMALL, "ring": away}))).run(folder)
    return float(summary["accuracy"]["worst"])


def rounds_of(ring: Ring, i: int) -> list[int]:
    """The rounds in which a node took its turn, in the order in which it did."""
    rows = (ring.node(i) / "run/selections.csv").read_text().splitlines()[1:]
    return [int(row.split(",")[0]) for row in rows]


def status(ring: Ring, i: int) -> dict[str, Any]:
    return json.loads((ring.node(i) / "status.json").read_text())


def finish_well(ring: Ring, which: list[int], simulated: float) -> None:
    """All of them came to their end, learnt as much as they should, and accuse nobody."""
    assert ring.wait(which) == dict.fromkeys(which, 0), ring.story(which)
    assert ring.accuracy(which) >= simulated - NEAR
    assert all(status(ring, i)["excluded"] == [] for i in which)


def test_a_killed_node_costs_no_more_than_itself(
    ring_of: Callable[..., Ring], simulated: float
) -> None:
    ring = ring_of(SMALL)
    ring.start_all()
    ring.until_round(3)
    ring.kill(VICTIM)
    finish_well(ring, OTHERS, simulated)
    assert all(rounds_of(ring, i) == list(range(1, ROUNDS + 1)) for i in OTHERS)
    assert any(VICTIM in status(ring, i)["missing"] for i in OTHERS)


def test_a_frozen_node_is_left_behind_and_catches_up(
    ring_of: Callable[..., Ring], simulated: float
) -> None:
    ring = ring_of(SMALL)
    ring.start_all()
    ring.until_round(3)
    ring.signal(VICTIM, signal.SIGSTOP)
    before = ring.round(VICTIM)
    ring.until_round(before + 5)
    ring.signal(VICTIM, signal.SIGCONT)
    finish_well(ring, list(range(N)), simulated)
    turns = rounds_of(ring, VICTIM)
    assert turns[-1] == ROUNDS
    assert turns == sorted(set(turns))
    assert len(turns) < ROUNDS  # it rejoined, instead of making up for what was over


def test_nodes_killed_and_frozen_at_random_never_contradict_themselves(
    ring_of: Callable[..., Ring], simulated: float
) -> None:
    """Up to two at a time are down, at whatever point of their turn it hits them.

    They are killed faster than a crowded machine starts them: whoever is there goes on.
    """
    draw = random.Random(5)
    rounds = 14
    ring = ring_of({**SMALL, "scheme": {"rounds": rounds}})
    ring.start_all(*ANYBODY)
    ring.until_round(2)
    down: list[tuple[int, bool]] = []  # node, is it frozen?
    while max(map(ring.round, range(N))) < rounds - 5:
        victim = draw.choice([i for i in range(N) if i not in dict(down)])
        frozen = draw.random() < 0.3
        if frozen:
            ring.signal(victim, signal.SIGSTOP)
        else:
            ring.kill(victim)
        down.append((victim, frozen))
        time.sleep(draw.uniform(0.0, 0.5))
        if len(down) == 2:
            back(ring, *down.pop(0))
    for victim, frozen in down:
        back(ring, victim, frozen)
    finish_well(ring, list(range(N)), simulated)
    for i in range(N):
        turns = rounds_of(ring, i)
        assert turns == sorted(set(turns))
        assert turns[-1] == rounds


def back(ring: Ring, i: int, frozen: bool) -> None:
    if frozen:
        ring.signal(i, signal.SIGCONT)
    else:
        ring.start(i, *ANYBODY)


def test_all_nodes_killed_at_once_go_on_where_they_were(
    ring_of: Callable[..., Ring], simulated: float
) -> None:
    ring = ring_of(SMALL)
    ring.start_all()
    ring.until_round(4)
    for i in range(N):
        ring.signal(i, signal.SIGKILL)
    ring.wait()
    done = [ring.round(i) for i in range(N)]
    ring.start_all()
    finish_well(ring, list(range(N)), simulated)
    for i in range(N):
        turns = rounds_of(ring, i)
        assert turns == list(range(1, ROUNDS + 1)), (i, done)


@pytest.mark.parametrize("kind", ["slow", "half open"])
def test_a_bad_link_to_one_node_does_not_hold_up_the_others(
    ring_of: Callable[..., Ring], simulated: float, kind: str
) -> None:
    port, *ports = free_ports(N)
    # A model is 2,600 bytes: over this link each hop takes longer than anybody's patience.
    link = BadLink(port)
    link.rate = 4000.0 if kind == "slow" else None
    places = [f"127.0.0.1:{p}" for p in ports]
    places.insert(VICTIM, f"127.0.0.1:{link.port}")
    ring = ring_of(SMALL, places)
    ring.start_all(but=[VICTIM])
    ring.start(VICTIM, "--listen", f"127.0.0.1:{port}")
    try:
        ring.until_round(2)
        link.frozen = kind == "half open"
        finish_well(ring, OTHERS, simulated)
    finally:
        link.close()
    assert all(rounds_of(ring, i) == list(range(1, ROUNDS + 1)) for i in OTHERS)
    assert link.held_up > 1  # it was bad: there were bytes that had to wait in it


def test_a_full_disk_ends_the_node_before_it_says_what_it_cannot_keep(
    ring_of: Callable[..., Ring], simulated: float
) -> None:
    ring = ring_of(SMALL)
    ring.start_all()
    ring.until_round(3, VICTIM)
    # From now on no file of this process may be longer: a checkpoint is.
    resource.prlimit(ring.pids[VICTIM], resource.RLIMIT_FSIZE, (4000, 4000))
    assert ring.wait([VICTIM]) == {VICTIM: 2}, ring.log(VICTIM)
    last = ring.log(VICTIM).splitlines()[-1]
    assert last.startswith("basil: ")
    assert "without a checkpoint nothing is sent. Make room and start the node again" in last
    ring.start(VICTIM)  # there is room again
    finish_well(ring, list(range(N)), simulated)
    turns = rounds_of(ring, VICTIM)
    assert turns == sorted(set(turns))
    assert turns[-1] == ROUNDS


def test_wall_clocks_may_differ_by_days(ring_of: Callable[..., Ring], simulated: float) -> None:
    ring = ring_of(SMALL)
    ring.start_all(but=[0, VICTIM])
    ring.start(0, skew=86400.0 * 3)
    ring.start(VICTIM, skew=3600.0)
    finish_well(ring, list(range(N)), simulated)
    assert all(rounds_of(ring, i) == list(range(1, ROUNDS + 1)) for i in range(N))
    assert status(ring, 0)["written"] - status(ring, 1)["written"] > 2 * 86400


def test_a_node_that_comes_late_joins_in(ring_of: Callable[..., Ring], simulated: float) -> None:
    ring = ring_of(SMALL)
    for i in OTHERS:
        ring.start(i, "--window", "1")
    ring.until_round(4)
    ring.start(VICTIM)
    finish_well(ring, list(range(N)), simulated)
    turns = rounds_of(ring, VICTIM)
    assert 4 < turns[0] <= ROUNDS
    assert turns[-1] == ROUNDS


def test_a_node_returns_with_a_renewed_certificate(
    ring_of: Callable[..., Ring], simulated: float
) -> None:
    """Only its own folder is given the new roster: the others hear of it from the node itself."""
    ring = ring_of(SMALL)
    ring.start_all()
    ring.until_round(2)
    ring.kill(VICTIM)
    address = load_roster(ring.folder).member(VICTIM).address  # type: ignore[union-attr]
    old = (ring.node(0) / ROSTER).read_bytes()
    request = authority.request(ring.node(VICTIM), VICTIM, address)
    renewed = authority.sign(ring.folder, request)
    for i in OTHERS:
        (ring.node(i) / ROSTER).write_bytes(old)
    for file in renewed.iterdir():
        (ring.node(VICTIM) / file.name).write_bytes(file.read_bytes())
    ring.start(VICTIM)
    finish_well(ring, list(range(N)), simulated)
    assert rounds_of(ring, VICTIM)[-1] == ROUNDS
    assert all(load_roster(ring.node(i)).version == 2 for i in range(N))


def test_rings_in_parallel_go_on_without_a_node_and_take_it_back(
    ring_of: Callable[..., Ring],
) -> None:
    """Basil+ with two rings of three: one loses a node, which comes back."""
    groups = {**SMALL["ring"], "connectivity": 1, "groups": 2, "dropouts": 1}
    ring = ring_of({**SMALL, "ring": groups, "scheme": {"name": "basil+", "rounds": ROUNDS}})
    ring.start_all()
    ring.until_round(2)
    ring.kill(VICTIM)
    k = ring.round(0)
    ring.until_round(k + 3)
    for i in OTHERS:  # however long it takes to start, the rounds are not over before it is back
        ring.signal(i, signal.SIGSTOP)
    ring.start(VICTIM)
    ring.until(lambda: status(ring, VICTIM)["phase"] == JOINING)
    for i in OTHERS:
        ring.signal(i, signal.SIGCONT)
    assert set(ring.wait().values()) == {0}, ring.story(range(N))
    assert [ring.round(i) for i in range(N)] == [ROUNDS] * N, ring.story(range(N))
    assert all(status(ring, i)["excluded"] == [] for i in range(N))
