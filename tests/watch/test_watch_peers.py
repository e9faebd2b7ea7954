"""A ring of peers, as the members on this machine see it."""

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from basil.peer.members import authority
from basil.peer.run.status import STATUS, Status
from basil.watch.ring_view import RingView

from peer_helpers import free_ports
from watch_helpers import PATIENCE, GrowingRun, served

PLACES = [f"192.0.2.{node}:7400" for node in range(5)]


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    authority.init(tmp_path / "ring", authority.demo_recipe(5), PLACES)
    return tmp_path / "ring"


def stands(ring: Path, node: int, **what: object) -> None:
    values = {"phase": "training", "round": 7, "rounds": 80, **what}
    Status(node, 1, **values).write(ring / f"node-{node}")  # type: ignore[arg-type]


def told(view: RingView) -> dict[str, dict[str, object]]:
    view.look()
    news, _ = view.news(None)
    assert news is not None
    return {node["name"]: node for node in news["members"]}


def test_all_members_of_a_ring_on_this_machine(ring: Path) -> None:
    stands(ring, 0, selected=4)
    stands(ring, 1, missing=[2], excluded=[3], refused=4)
    stands(ring, 2, round=3)
    stands(ring, 4, round=6, attack="gaussian")
    nodes = told(RingView(ring))
    states = {name: node["state"] for name, node in nodes.items()}
    expected = {"0": "ok", "1": "ok", "2": "suspected", "3": "excluded", "4": "ok"}
    assert states == expected
    assert nodes["2"]["lag"] == 4
    assert nodes["0"]["address"] == PLACES[0]
    assert nodes["1"]["evidence"] == "refused 4 messages"
    assert nodes["3"]["evidence"] == "proven to have lied (1 member here)"
    assert nodes["4"]["evidence"] == "lies, for a drill: gaussian"


def test_a_member_sees_those_that_it_hears(ring: Path) -> None:
    stands(ring, 1, heard={0: 7, 4: 4}, missing=[4])
    stands(ring, 2, round=70)  # on another machine: its folder is not looked into
    nodes = told(RingView(ring / "node-1"))
    states = {name: node["state"] for name, node in nodes.items()}
    assert states == {"0": "ok", "1": "ok", "2": "unknown", "3": "unknown", "4": "suspected"}
    assert (nodes["0"]["round"], nodes["4"]["lag"], nodes["2"]["round"]) == (7, 3, None)


def test_who_is_revoked_silent_late_or_done(ring: Path) -> None:
    authority.revoke(ring, 0)
    stands(ring, 1)
    stands(ring, 2)
    old = json.loads((ring / "node-2" / STATUS).read_text())
    (ring / "node-2" / STATUS).write_text(json.dumps({**old, "written": time.time() - 60}))
    stands(ring, 3, round=4)
    stands(ring, 4, phase="done")
    states = {name: node["state"] for name, node in told(RingView(ring)).items()}
    assert states == {"0": "excluded", "1": "ok", "2": "gone", "3": "late", "4": "done"}


def test_curves_and_choices_are_those_of_the_members_here(ring: Path) -> None:
    for node in range(3):
        stands(ring, node, attack="gaussian" if node == 2 else "none")
        run = GrowingRun(ring / f"node-{node}/run", nodes=5, byzantine=())
        run.go_on(4, away=tuple(other for other in range(5) if other != node))
    view = RingView(ring)
    view.look()
    news, cursor = view.news(None)
    assert news is not None
    assert news["choices"]["4"] == [4, 0, 1, -2, -2]
    # Two benign nodes measure; all three send.
    last = news["points"][2]
    assert last["round"] == 2
    assert last["accuracy"] == {"worst": 0.6333, "mean": 0.6333}
    assert last["bytes"] == 3 * 140_000
    assert view.news(cursor) == (None, cursor)


def test_a_status_that_is_being_written_is_read_next_time(ring: Path) -> None:
    stands(ring, 0)
    view = RingView(ring)
    assert told(view)["0"]["state"] == "ok"
    (ring / "node-0" / STATUS).write_text('{"node": 0')
    assert told(view)["0"]["state"] == "waiting"
    stands(ring, 0, round=8)
    assert told(view)["0"]["round"] == 8


def test_news_of_a_ring_come_as_they_happen(ring: Path) -> None:
    stands(ring, 0)
    with served(ring) as site, site.listening() as following:
        first = following()
        assert (first["kind"], first["reset"], first["rounds"]) == ("ring", True, 80)
        stands(ring, 0, round=8, excluded=[2])
        news = following()
        assert "reset" not in news
        assert any("node 2: excluded" in text for _, text, _ in news["log"])


@pytest.mark.slow
def test_real_peers_on_this_machine_are_watched_while_they_run(tmp_path: Path) -> None:
    places = [f"127.0.0.1:{port}" for port in free_ports(4)]
    recipe = authority.demo_recipe(4).replace("rounds = 80", "rounds = 20")
    authority.init(tmp_path / "ring", recipe, places)
    words = ["peers", "up", "--dir", str(tmp_path / "ring"), "--watch", "--linger", "1"]
    full = [sys.executable, "-m", "basil", *words]
    with subprocess.Popen(full, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as up:
        assert up.stderr is not None
        url = up.stderr.readline().removeprefix("page  ").strip()
        with urllib.request.urlopen(f"{url}events", timeout=PATIENCE) as events:
            told = dict[str, Any]()
            while told.get("round", 0) < 5:
                line = events.readline()
                if line.startswith(b"data: "):
                    told |= json.loads(line.removeprefix(b"data: "))
        _, complaints = up.communicate(timeout=300)
    assert up.returncode == 0, complaints
    assert [node["state"] for node in told["members"]].count("ok") >= 2
    assert told["choices"]
