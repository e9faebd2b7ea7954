"""One peer as its user sees it: the command, its logs and metrics, its folder; data of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from basil.cli import main
from basil.data import load
from basil.data.rows import to_rows
from basil.errors import UserError
from basil.experiment import Simulation, local_node, set_up
from basil.peer.members import authority
from basil.peer.members.roster import load_roster, save_roster
from basil.peer.run import agreement
from basil.peer.run.agreement import Alone
from basil.peer.run.data_sharing import Sharing
from basil.peer.run.local_ring import check_state
from basil.peer.run.peer import Peer
from basil.peer.run.start import Options, quorum_of
from basil.peer.run.status import Status
from basil.protocol.sharing.acds import SharingOutcome
from basil.protocol.sharing.basket import Basket
from basil.recipe import parse, to_toml
from basil.recipe.schema import AttackPart
from basil.record.read import read_run
from basil.record.run_folder import held

from nursery import Ring
from peer_helpers import free_ports, make_ring

TINY: dict[str, Any] = {
    "seed": 1,
    "ring": {"nodes": 4, "byzantine": 1, "connectivity": 2},
    "scheme": {"rounds": 6},
    "learning": {"model": "softmax", "batch": 16, "rate": 0.1},
    "record": {"every": 2},
}


def events(ring: Ring, i: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ring.log(i).splitlines() if line.startswith("{")]


@pytest.mark.slow
def test_a_ring_with_logs_and_metrics_for_machines(ring_of: Callable[..., Ring]) -> None:
    ring = ring_of({**TINY, "scheme": {"rounds": 30}})
    (port,) = free_ports(1)
    ring.start(0, "--log-json", "--metrics", f"127.0.0.1:{port}")
    for i in (1, 2, 3):
        ring.start(i, "--log-json")
    ring.until_round(3)
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert 3 <= float(figures["basil_round"]) <= 30
    assert float(figures["basil_patience_seconds"]) >= 0.4
    assert sum(float(figures[f'basil_peer_received_total{{peer="{i}"}}']) for i in (1, 2, 3)) > 3
    assert set(ring.wait().values()) == {0}, ring.story(range(4))
    told = events(ring, 0)
    assert all(event["node"] == 0 for event in told)
    turns = [event for event in told if event["event"] == "turn"]
    assert [event["round"] for event in turns] == list(range(1, 31))
    assert told[-1]["event"] == "finished"
    assert told[-1]["accuracy"] == ring.summary(0)["accuracy"]["worst"]


@pytest.mark.slow
def test_the_try_out_ends_with_a_run_that_report_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From nothing to a page; with a Byzantine node among them, as in the recipe."""
    ring = tmp_path / "ring"
    recipe = to_toml(parse({**TINY, "attack": {"name": "gaussian"}}))
    authority.init(ring, recipe, [f"127.0.0.1:{port}" for port in free_ports(4)])
    words = ["peers", "up", "--dir", str(ring), "--linger", "8"]
    up = subprocess.run(
        [sys.executable, "-m", "basil", *words], capture_output=True, text=True, timeout=120
    )
    assert up.returncode == 0, up.stderr
    assert "Gaussian" in up.stdout
    assert f"basil report {ring / 'all'}" in up.stdout
    assert main(["report", str(ring / "all"), "--out", str(tmp_path / "page")]) == 0
    assert (tmp_path / "page/report.html").exists()
    assert main(["report", str(ring / "node-0/run"), "--out", str(tmp_path / "one")]) == 0
    capsys.readouterr()
    assert main(["peers", "status", "--dir", str(ring), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["phase"] for each in found] == ["done"] * 4
    byzantine = set_up(parse({**TINY, "attack": {"name": "gaussian"}})).participants.byzantine
    assert {each["node"] for each in found if each["attack"] == "gaussian"} == byzantine
    assert main(["peers", "status", "--dir", str(ring / "node-1")]) == 0
    assert "6/6" in capsys.readouterr().out
    assert main(words) == 2
    assert "all nodes of" in capsys.readouterr().err
    before = (ring / "node-0/run/run.json").stat().st_mtime_ns
    again = subprocess.run(
        [sys.executable, "-m", "basil", *words, "--fresh"], capture_output=True, timeout=120
    )
    assert again.returncode == 0
    assert (ring / "node-0/run/run.json").stat().st_mtime_ns > before


def test_a_node_says_why_it_ends_in_lines_as_wide_as_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "node 0 has waited 4 s for node 1: 1 of 2 are here, and it takes 2 to train."

    def left_alone(_: Peer) -> None:
        raise Alone(reason)

    monkeypatch.setattr(Peer, "run", left_alone)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the command takes some over
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["node", "--dir", str(make_ring(tmp_path, 2) / "node-0")]) == 1
    said = capsys.readouterr().err
    assert max(map(len, said.splitlines())) <= 60
    assert said.split() == f"basil: {reason}".split()


@pytest.mark.slow
def test_what_failed_nodes_said_is_shown_whole_in_lines_as_wide_as_the_terminal(
    tmp_path: Path,
) -> None:
    ring = make_ring(tmp_path / "ring", 2)
    words = [sys.executable, "-m", "basil", "peers", "up", "--dir", str(ring), "--quorum", "9"]
    up = subprocess.run(
        words, capture_output=True, text=True, timeout=120, env={**os.environ, "COLUMNS": "50"}
    )
    assert up.returncode == 2
    sentence = "basil: --quorum 9: it must be from 1 to 2, as many as take part"
    for i in (0, 1):
        assert (ring / f"node-{i}/node.log").read_text() == f"{sentence}\n"
        assert f"warning: node-{i} ended with 2: {sentence}" in " ".join(up.stderr.split())
    lines = [line for line in up.stderr.splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 50


@pytest.mark.slow
def test_a_stopped_node_says_how_to_go_on_and_does(ring_of: Callable[..., Ring]) -> None:
    ring = ring_of({**TINY, "scheme": {"rounds": 12}})
    ring.start_all()
    ring.until_round(3)
    for i in range(4):
        ring.signal(i, signal.SIGTERM)
    assert set(ring.wait().values()) == {130}
    lines = ring.log(2).splitlines()
    assert lines[-1] == f"stopped; go on with: basil node --dir {ring.node(2)}"
    ring.start_all()
    assert set(ring.wait().values()) == {0}, ring.story(range(4))
    rows = (ring.node(2) / "run/selections.csv").read_text().splitlines()[1:]
    assert [int(row.split(",")[0]) for row in rows] == list(range(1, 13))


@pytest.mark.slow
def test_nodes_that_mean_different_runs_refuse_and_say_with_whom(
    ring_of: Callable[..., Ring],
) -> None:
    """The authority signed both; the versions are the same, so no roster is newer."""
    tree = {**TINY, "ring": {"nodes": 4, "byzantine": 0, "connectivity": 2}}
    ring = ring_of(tree)
    mine = load_roster(ring.folder)
    other = replace(mine, recipe=mine.recipe.replace("rounds = 6", "rounds = 7"))
    authority._publish(ring.folder, other)  # to all; three of them get the first one back
    for place in (ring.folder, *(ring.node(i) for i in (0, 1, 3))):
        save_roster(place, mine)
    ring.start_all()
    assert ring.wait([2]) == {2: 2}
    last = ring.log(2).splitlines()[-1]
    assert "node 2 does not agree with nodes 0, 1, 3 on what is to be run" in last
    assert all(code == 2 for code in ring.wait().values())  # with b = 0 nobody may differ
    assert "node 0 does not agree with node 2 on" in ring.log(0).splitlines()[-1]


@pytest.mark.slow
def test_every_machine_may_have_data_of_its_own(
    ring_of: Callable[..., Ring], tmp_path: Path
) -> None:
    """Digits dealt by hand into folders: the same run as if the recipe had dealt them."""
    digits = load("digits", 1)
    recipe = parse(TINY)
    simulated = set_up(recipe)
    summary = Simulation(simulated).run(tmp_path / "simulated")
    ring = ring_of(TINY)
    for i in range(4):
        folder = tmp_path / f"data-{i}"
        folder.mkdir()
        mine = simulated.node_data.local[i]
        for name, samples, which in (
            ("train", digits.train, mine),
            ("test", digits.test, slice(None)),
        ):
            np.save(folder / f"{name}-x.npy", samples.x[which])
            np.save(folder / f"{name}-y.npy", samples.y[which])
        facts = {"classes": 10, "mean": list(digits.mean), "std": list(digits.std)}
        (folder / "dataset.json").write_text(json.dumps(facts))
        ring.start(i, "--twin", "--patience", "10", "--data", str(folder))
    assert set(ring.wait().values()) == {0}, ring.story(range(4))
    assert ring.accuracy(range(4)) == summary["accuracy"]["worst"]
    left = read_run(ring.node(2) / "run")
    assert left.facts["data"]["train"] == [len(simulated.node_data.local[2]), 1, 8, 8]
    assert (left.recipe["data"]["dataset"], left.recipe["data"]["name"]) == ("own", "data-2")


@pytest.mark.slow
def test_sharing_goes_on_without_a_node_that_is_not_there(ring_of: Callable[..., Ring]) -> None:
    sharing = {"alpha": 0.2, "batches": 1}
    soon = {"patience": 1.0}  # given up when it is due, not three times as late
    ring = ring_of({**TINY, "data": {"partition": "sorted"}, "sharing": sharing, "time": soon})
    absent = 2
    for i in (0, 1, 3):
        ring.start(i, "--window", "1")
    assert set(ring.wait([0, 1, 3]).values()) == {0}, ring.story([0, 1, 3])
    incidents = [e for i in (0, 1, 3) for e in ring.summary(i)["sharing"]["incidents"]]
    assert any(e["what"] == "silent" and e["about"] == absent for e in incidents)
    assert all(ring.summary(i)["sharing"]["received"] > 0 for i in (0, 1, 3))


@pytest.mark.slow
def test_a_byzantine_node_that_says_two_things_is_found_out_and_not_listened_to(
    ring_of: Callable[..., Ring],
) -> None:
    """Dissensus sends each receiver another model: a drill with proof."""
    more = {"ring": {"nodes": 5, "byzantine": 1, "connectivity": 4}, "scheme": {"rounds": 2000}}
    ring = ring_of({**TINY, **more})
    byzantine = 1
    ring.start_all(but=[byzantine])
    ring.start(byzantine, "--attack", "dissensus")
    others = [i for i in range(5) if i != byzantine]

    def status(i: int) -> dict[str, Any]:
        return json.loads((ring.node(i) / "status.json").read_text())

    ring.until_round(1)
    ring.until(lambda: all(status(i)["excluded"] == [byzantine] for i in others))
    then = status(0)["round"]
    ring.until_round(then + 3)
    assert all(byzantine in status(i)["missing"] for i in others)  # treated like a silent one
    assert all(status(i)["selected"] != byzantine for i in others)


def test_a_node_that_crashed_while_it_shared_is_silent_there_and_trains_with_what_it_has(
    tmp_path: Path,
) -> None:
    """Its offer is forgotten; to offer other samples would be to contradict itself."""
    settings = parse({**TINY, "sharing": {"alpha": 0.2, "batches": 1}})
    digits = load("digits", 1)

    def sharing() -> Sharing:
        return Sharing(settings, local_node(settings, digits, 2, AttackPart()), tmp_path)

    first = sharing()
    assert not first.over
    first.begin()  # and then it crashes
    second = sharing()
    assert second.over
    assert second.take_in() == {"broken_off": True}
    assert second.local.node_data.received == {}


def test_what_was_received_is_there_after_a_restart(tmp_path: Path) -> None:
    settings = parse({**TINY, "sharing": {"alpha": 0.2, "batches": 1}})
    digits = load("digits", 1)
    theirs = local_node(settings, digits, 1, AttackPart()).offered
    assert theirs is not None
    mine = Sharing(settings, local_node(settings, digits, 2, AttackPart()), tmp_path)
    mine.begin()
    rows = to_rows(theirs, 10)[:7]
    mine.finish(
        SharingOutcome(received=Basket(rows, mine.bits), offered=Basket(rows[:0], mine.bits))
    )
    again = Sharing(settings, local_node(settings, digits, 2, AttackPart()), tmp_path)
    assert again.over
    assert again.take_in()["received"] == 7
    got = again.local.node_data.received[2]
    assert np.array_equal(again.local.node_data.train.x[got], theirs.x[:7])
    assert np.array_equal(again.local.node_data.train.y[got], theirs.y[:7])


def test_a_finished_node_that_cannot_stay_for_the_others_has_finished_all_the_same(
    some_ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a machine has no thread left for it, staying is given up; not the run."""

    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    peer = Peer(Options(some_ring / "node-0", device="cpu"))
    said: list[str] = []
    monkeypatch.setattr(agreement, "say", lambda event, *level, **facts: said.append(event))
    monkeypatch.setattr(threading.Thread, "start", full)
    peer._linger()
    peer.transport.stop()
    assert said == ["cannot ask"]


def test_a_node_on_a_machine_without_threads_says_so(
    some_ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    peer = Peer(Options(some_ring / "node-0", device="cpu"))
    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", full)
        with pytest.raises(UserError, match="starts no more threads"):
            peer.transport.start()
    peer.transport.stop()


# -- wrong input: one sentence, exit code 2 -------------------------------------------------------


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    assert main(words) == 2
    for number, handler in handlers.items():
        signal.signal(number, handler)
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("basil: ")


@pytest.fixture(scope="module")
def some_ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("some") / "ring"
    places = [f"127.0.0.1:{port}" for port in free_ports(4)]
    authority.init(folder, to_toml(parse(TINY)), places)
    return folder


@pytest.mark.parametrize(
    ("ring", "asked", "needed", "sources", "honest"),
    [
        ({"byzantine": 1, "connectivity": 2}, None, 3, 2, 2),
        ({"byzantine": 1, "connectivity": 2, "dropouts": 1}, None, 3, 3, 2),
        ({"byzantine": 2, "connectivity": 1}, None, 3, 1, 1),  # S <= b: no more than S
        ({"byzantine": 0, "connectivity": 2}, None, 3, 2, 1),
        ({"byzantine": 1, "connectivity": 2}, 4, 4, 0, 0),  # who says how many means just that
    ],
)
def test_a_quorum_follows_from_the_recipe_unless_one_is_asked_for(
    tmp_path: Path, ring: dict[str, int], asked: int | None, needed: int, sources: int, honest: int
) -> None:
    recipe = parse({**TINY, "ring": {"nodes": 4, **ring}})
    places = [f"127.0.0.1:{port}" for port in free_ports(4)]
    roster = authority.init(tmp_path / "ring", to_toml(recipe), places)
    who = local_node(recipe, load("digits", 1), 2, AttackPart()).participants
    options = Options(tmp_path, quorum=asked)
    quorum = quorum_of(options, roster, who, lambda missing: None)
    assert (quorum.needed, len(quorum.sources), quorum.honest) == (needed, sources, honest)
    assert quorum.sources <= set(who.ring.behind(2, 3))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--attack", "gausian"], "did you mean 'gaussian'"),
        (["--quorum", "5"], "--quorum 5: it must be from 1 to 4, as many as take part"),
        (["--alone", "-1"], "--alone -1.0: it must be seconds, 0 or more"),
        (["--patience", "-1"], "--patience -1.0: it must be seconds, 0 or more"),
        (["--data", "nowhere"], "nowhere/dataset.json cannot be read as facts of a data set"),
        (["--metrics", "9100x"], "--metrics 9100x: write it as 127.0.0.1:9100"),
    ],
)
def test_a_node_that_is_started_wrongly_is_told_so(
    some_ring: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert sentence in refused(["node", "--dir", str(some_ring / "node-0"), *words], capsys)


def test_a_folder_without_nodes_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = refused(["peers", "up", "--dir", str(tmp_path)], capsys)
    assert f"{tmp_path} holds no nodes: make them with basil peers init" in sentence


def test_nodes_that_have_not_run_yet_are_shown_as_such(
    some_ring: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["peers", "status", "--dir", str(some_ring)]) == 0
    assert capsys.readouterr().out.count("not started") == 4


def test_a_ring_that_was_begun_is_gone_on_with_or_deleted_but_never_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = make_ring(tmp_path / "ring", 3)
    words = ["peers", "up", "--dir", str(ring)]
    assert "holds no run to go on with: leave --resume out" in refused([*words, "--resume"], capsys)
    for name in ("run", "state"):
        (ring / "node-1" / name).mkdir()
    sentence = refused(words, capsys)
    assert f"{ring} holds a run that was begun: --resume goes on with it, --fresh" in sentence
    with held(ring / "node-1"):  # it is running
        assert "node-1 is being written by another process" in refused([*words, "--fresh"], capsys)
    assert (ring / "node-1/state").exists()
    check_state(ring, resume=True, fresh=False)
    (ring / "node-2").rename(tmp_path / "another machine")
    assert "--fresh: node 2 is not in" in refused([*words, "--fresh"], capsys)
    (tmp_path / "another machine").rename(ring / "node-2")
    check_state(ring, resume=False, fresh=True)
    assert not (ring / "node-1/run").exists()
    assert not (ring / "node-1/state").exists()
    assert (ring / "node-1/tls.key").exists()


def test_a_run_that_was_begun_is_not_gone_on_with_in_a_ring_that_has_grown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = make_ring(tmp_path / "ring", 3)
    roster, run = load_roster(ring), ring / "node-0/run"
    run.mkdir()
    (run / "recipe.toml").write_text(roster.recipe)
    facts = {"order": [0, 1, 2], "byzantine": [], "ring": roster.run, "attack": "none"}
    (run / "run.json").write_text(json.dumps(facts))
    authority.add(ring, f"127.0.0.1:{free_ports(1)[0]}")
    sentence = refused(["node", "--dir", str(ring / "node-0"), "--device", "cpu"], capsys)
    assert f"{run} holds another run of this node: move it away" in sentence


def test_a_node_runs_once_at_a_time_in_its_folder(
    some_ring: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second one would write its own marks over those of the first."""
    folder = some_ring / "node-0"
    with held(folder):
        assert "node-0 is being written by another process" in refused(
            ["node", "--dir", str(folder)], capsys
        )


def test_status_shows_who_was_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring = make_ring(tmp_path / "ring", 3)
    Status(2, 1, "training").write(ring / "node-2")
    authority.revoke(ring, 1)
    authority.revoke(ring, 2)
    assert main(["peers", "status", "--dir", str(ring)]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line.split()[0] for line in lines if line.endswith("revoked")] == ["1", "2"]
    assert lines[-1] == "revoked  1 2"
    assert main(["peers", "status", "--dir", str(ring), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[2]["revoked"] is True


def test_a_node_without_room_does_not_begin(
    some_ring: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(some_ring)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    sentence = refused(["node", "--dir", str(some_ring / "node-3")], capsys)
    assert "node-3/run needs about" in sentence
