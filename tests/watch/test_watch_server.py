"""Who may see the page, and what it is told."""

import json
import time
from itertools import pairwise
from pathlib import Path

import pytest

from basil.watch import run_view
from basil.watch.collection_view import CollectionView
from basil.watch.run_view import FRESH, MOST_POINTS, MOST_ROUNDS, RunView
from basil.watch.server import HEADERS, names_of

from watch_helpers import TOKEN, GrowingRun, a_moment, served

REAL = f"/{TOKEN}/"


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    made = GrowingRun(tmp_path / "run")
    made.go_on(3)
    return made


def test_nothing_is_told_without_the_token(run: GrowingRun) -> None:
    with served(run.folder) as site:
        paths = ("", "events", "rounds?first=1&last=2", "main.js", "style.css", "nothing")
        for token in ("", "x", TOKEN[:-1], f"{TOKEN}x", TOKEN.upper(), "%00", "ü"):
            for path in paths:
                code, headers, text = site.ask(f"/{token.replace('ü', '%C3%BC')}/{path}")
                assert code == 403, (token, path)
                assert "token" in text
                assert headers["content-security-policy"]
        assert site.ask(f"/?token={TOKEN}")[0] == 403
        assert site.ask(REAL)[0] == 200
        code, headers, _ = site.ask(f"/{TOKEN}")  # as it may be typed
        assert (code, headers["location"]) == (307, REAL)


def test_another_name_of_the_server_is_refused(run: GrowingRun) -> None:
    """A page elsewhere can have its own name lead here; the browser says under which it asks."""
    with served(run.folder) as site:
        good = [f"127.0.0.1:{site.port}", f"localhost:{site.port}", f"[::1]:{site.port}"]
        bad = [
            "evil.example",
            f"evil.example:{site.port}",
            "127.0.0.1",
            "127.0.0.1:1",
            "",
            "10.0.0.1",
        ]
        assert [site.ask(REAL, host)[0] for host in good] == [200] * 3
        assert [site.ask(REAL, host)[0] for host in bad if host] == [421] * 5


def test_elsewhere_than_on_loopback_addresses_and_own_names_will_do() -> None:
    is_ours = names_of("0.0.0.0", 80)
    assert all(map(is_ours, ("192.0.2.7:80", "[2001:db8::1]:80", "localhost:80", "127.0.0.1:80")))
    assert not any(map(is_ours, ("evil.example:80", "192.0.2.7:81", "192.0.2.7")))
    assert not names_of("127.0.0.1", 80)("192.0.2.7:80")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_it_can_only_be_read(run: GrowingRun, method: str) -> None:
    with served(run.folder) as site:
        assert site.ask(REAL, method=method)[0] == 405


def test_every_answer_forbids_what_a_page_may_not_do(run: GrowingRun) -> None:
    with served(run.folder) as site:
        for path in ("", "main.js", "style.css", "icon.svg", "nothing", "rounds?first=x&last=1"):
            _, headers, _ = site.ask(REAL + path)
            assert {name: headers.get(name) for name in HEADERS} == HEADERS
        policy = HEADERS["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        text = site.ask(REAL)[2]
        assert "<style" not in text
        assert "style=" not in text
        assert text.count("<script") == text.count('<script type="module" src=') == 1
        assert "http" not in text.replace("http-equiv", "")  # nothing from elsewhere


def test_files_outside_the_page_are_not_served(run: GrowingRun) -> None:
    with served(run.folder) as site:
        for path in (
            "../server.py",
            "..%2fserver.py",
            "%2e%2e/server.py",
            "server.py",
            "/etc/passwd",
        ):
            assert site.ask(REAL + path)[0] == 404


def test_a_run_is_told_at_once_and_then_what_is_new(run: GrowingRun) -> None:
    with served(run.folder) as site, site.listening() as following:
        first = following()
        assert first["reset"]
        assert first["title"] == "Basil · Gaussian"
        assert (first["round"], first["rounds"], first["state"]) == (3, 40, "running")
        assert first["names"] == list("012345")
        assert first["choices"]["3"] == [5, 0, 1, 2, 3, 4]
        assert [point["round"] for point in first["points"]] == [0, 1, 2, 3]
        run.go_on(away=(4,))
        news = following()
        assert "reset" not in news
        assert [point["round"] for point in news["points"]] == [4]
        assert news["choices"] == {"4": [5, 0, 1, 2, -2, 4]}
        said = [text for _, text, _ in news["log"]]
        assert "node 4 is gone" in said
        assert "node 3 chose a Byzantine model" in said
        run.go_on()
        assert "node 4 is back" in [text for _, text, _ in following()["log"]]
        run.finish()
        assert following()["state"] == "finished"


def test_a_truncated_line_is_told_when_it_is_whole(run: GrowingRun) -> None:
    run.round += 1
    line = json.dumps(run.measurement()) + "\n"
    run.append("metrics.jsonl", line[:20])
    with served(run.folder) as site, site.listening() as following:
        assert [point["round"] for point in following()["points"]] == [0, 1, 2, 3]
        run.append("metrics.jsonl", line[20:])
        assert [point["round"] for point in following()["points"]] == [4]


def test_a_run_that_begins_again_or_vanishes_is_told_from_its_beginning(run: GrowingRun) -> None:
    with served(run.folder) as site, site.listening() as following:
        following()
        run.begin()
        run.go_on(2)
        again = following()
        assert again["reset"]
        while again["round"] != 2:
            again = following()
        for file in run.folder.iterdir():
            file.unlink()
        gone = following()
        while gone["state"] != "waiting":
            gone = following()
        assert gone["rings"] == []


def test_who_knows_as_much_is_told_the_same_and_files_are_read_once(
    run: GrowingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    really = RunView.look

    def look(view: RunView) -> None:
        looks.append(time.monotonic())
        really(view)

    monkeypatch.setattr(RunView, "look", look)
    with served(run.folder) as site:
        listeners = [site.listening() for _ in range(10)]
        following = [each.__enter__() for each in listeners]
        firsts = [each() for each in following]
        assert all(first == firsts[0] for first in firsts)
        a_moment()
        a_moment()
        for each in listeners:
            each.__exit__(None, None, None)
    gaps = [b - a for a, b in pairwise(looks)]
    assert gaps
    assert min(gaps) >= 0.45


def test_rounds_that_a_page_missed_can_be_asked_for(run: GrowingRun) -> None:
    run.go_on(300)
    with served(run.folder) as site:
        with site.listening() as following:
            assert len(following()["choices"]) == FRESH + 1
        code, _, text = site.ask(f"{REAL}rounds?first=20&last=22")
        assert code == 200
        assert list(json.loads(text)["choices"]) == ["20", "21", "22"]
        many = json.loads(site.ask(f"{REAL}rounds?first=-9&last=9999999")[2])["choices"]
        assert len(many) <= MOST_ROUNDS + 1
        assert site.ask(f"{REAL}rounds?first=1")[0] == 400
        assert site.ask(f"{REAL}rounds?first=1&last=2&run=../run")[0] == 404


def test_a_large_run_is_a_small_message(tmp_path: Path) -> None:
    """500 rounds of 100 nodes: what is sent is bounded, and each line is read once."""
    run = GrowingRun(tmp_path / "run", nodes=100, byzantine=(3, 7), rounds=2000)
    run.go_on(500)
    run.go_on(0)
    view = RunView(run.folder)
    view.look()
    told, cursor = view.news(None)
    assert told is not None
    assert len(json.dumps(told)) < 250_000
    assert len(told["points"]) == 501
    for _ in range(3):
        view.look()
    assert view.news(cursor) == (None, cursor)
    for _ in range(1000):
        run.round += 1
        run.measure()
    view.look()
    told, _ = view.news(None)
    assert told is not None
    assert len(told["points"]) <= MOST_POINTS + 1
    assert told["points"][-1]["round"] == 1500


def test_ten_thousand_nodes_are_a_summary(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "run", nodes=10_000, byzantine=tuple(range(0, 10_000, 3)))
    run.go_on(2)
    view = RunView(run.folder)
    view.look()
    told, _ = view.news(None)
    assert told is not None
    assert len(json.dumps(told)) < 50_000
    assert len(told["arcs"]) == run_view.ARCS
    assert sum(told["arcs"]) / run_view.ARCS == pytest.approx(1 / 3, abs=0.01)
    found = told["choices"]["2"]
    # Of three in a row the first lies, and the second, who is benign, chooses it.
    assert (found["chose"], found["believed"], found["away"]) == (6666, 3333, 0)
    assert sum(count for *_, count in found["edges"]) == 6666


def test_many_runs_are_cells_that_fill(tmp_path: Path) -> None:
    plan = [{"folder": f"run-{i}", "scheme": "basil", "attack": "gaussian"} for i in range(3)]
    plan.append({"folder": "../elsewhere", "scheme": "basil", "attack": "none"})
    (tmp_path / "cases.json").write_text(json.dumps({"cases": plan}))
    run = GrowingRun(tmp_path / "run-0")
    with served(tmp_path) as site, site.listening() as following:
        first = following()
        assert first["kind"] == "collection"
        states = {cell["name"]: cell["state"] for cell in first["cells"]}
        assert states == {"run-0": "running", "run-1": "waiting", "run-2": "waiting"}
        run.go_on(2)
        [cell] = following()["cells"]
        assert (cell["name"], cell["round"], cell["rounds"]) == ("run-0", 2, 40)
        second = GrowingRun(tmp_path / "run-1")
        second.finish()
        cells = following()["cells"]
        assert {cell["name"]: cell["state"] for cell in cells}["run-1"] == "finished"
        with site.listening("?run=run-0") as inside:
            assert inside()["kind"] == "run"
        for name in ("run-2", "..", "/etc", "run-0/.."):
            assert site.ask(f"{REAL}events?run={name}")[0] == 404


def test_names_say_in_what_runs_differ(tmp_path: Path) -> None:
    for attack in ("gaussian", "hidden"):
        GrowingRun(tmp_path / attack, attack=attack).finish()
    (tmp_path / "hidden/error.txt").write_text("Traceback")
    (tmp_path / "hidden/summary.json").unlink()
    view = CollectionView(tmp_path)
    view.look()
    told, _ = view.news(None)
    assert told is not None
    found = {cell["attack"]: (cell["scheme"], cell["state"]) for cell in told["cells"]}
    assert found == {"Gaussian": ("Basil", "finished"), "Hidden": ("Basil", "failed")}
