"""A run folder, read while it is written: each line once, whatever happens to the files."""

import json
from collections.abc import Container
from pathlib import Path

import pytest

from basil.record import follow
from basil.record.follow import ABSENT, Follower, GrowingFile, planned
from basil.record.read import OWN, selection

from watch_helpers import GrowingRun


def test_every_whole_line_comes_once_and_a_cut_off_one_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    file = GrowingFile(path)
    assert file.news() == (False, [])
    path.write_text("one\ntwo\nthr")
    assert file.news() == (False, ["one", "two"])
    assert file.news() == (False, [])
    with path.open("a") as end:
        end.write("ee\n")
    assert file.news() == (False, ["three"])


@pytest.mark.parametrize(
    "text", ["one\n", "one\nTWO\n", "one\nTWO and much more than before\n", ""]
)
def test_a_file_that_is_cut_back_is_read_from_its_beginning(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lines"
    path.write_text("one\ntwo\n")
    file = GrowingFile(path)
    file.news()
    path.write_text(text)  # the same file: a resumed run truncates, and may have gone on since
    assert file.news() == (True, text.splitlines())
    assert file.news() == (False, [])


def test_a_file_that_vanishes_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("one\n")
    file = GrowingFile(path)
    file.news()
    path.unlink()
    assert file.news() == (True, [])
    path.write_text("one\n")
    assert file.news() == (False, ["one"])


def test_rows_are_by_place_on_the_ring(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "run", nodes=4, byzantine=())
    (run.folder / "run.json").write_text(json.dumps({"order": [3, 1, 0, 2], "byzantine": []}))
    run.append("selections.csv", "1,3,,0\n1,1,3,0\n1,0,0,0\n")
    follower = Follower(run.folder)
    assert follower.look()
    assert follower.rows[1].tolist() == [OWN, 0, OWN, ABSENT]


def test_only_what_is_new_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counted(line: str, nodes: Container[int]) -> tuple[int, int, int, int]:
        parsed.append(line)
        return selection(line, nodes)

    monkeypatch.setattr(follow, "selection", counted)
    run = GrowingRun(tmp_path / "run", nodes=6)
    run.go_on(50)
    follower = Follower(run.folder)
    assert follower.look()
    assert len(parsed) == 300
    assert not follower.look()
    run.go_on()
    assert follower.look()
    assert len(parsed) == 306


def test_a_resumed_run_a_new_one_and_none_at_all(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "run")
    run.go_on(5)
    follower = Follower(run.folder)
    follower.look()
    first = follower.generation
    for name in ("metrics.jsonl", "selections.csv"):  # back to a checkpoint after round 2
        lines = (run.folder / name).read_text().splitlines(keepends=True)
        kept = lines[:3] if name == "metrics.jsonl" else lines[: 1 + 2 * 6]
        (run.folder / name).write_text("".join(kept))
    follower.look()
    assert follower.generation > first
    assert list(follower.rows) == [1, 2]
    assert [entry["round"] for entry in follower.metrics] == [0, 1, 2]
    run.begin()
    run.finish()
    follower.look()
    assert not follower.rows
    assert follower.finished
    for file in list(run.folder.iterdir()):
        file.unlink()
    run.folder.rmdir()
    assert follower.look()
    assert not follower.here
    assert not follower.look()


def test_lines_that_make_no_sense_are_left_out(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "run")
    run.append("metrics.jsonl", '{"round": "x"}\n[1]\n\xff\n{"round": 7}\n')
    run.append("selections.csv", "1,99,0,0\nfoo\n1,0,5,0\n")
    follower = Follower(run.folder)
    follower.look()
    assert [entry["round"] for entry in follower.metrics] == [0, 7]
    assert follower.rows[1].tolist()[0] == 5


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cases": 3}', '{"cases": [7, {}]}', "\x00"])
def test_a_plan_that_cannot_be_read_plans_nothing(tmp_path: Path, text: str) -> None:
    assert planned(tmp_path) == []
    (tmp_path / "cases.json").write_text(text)
    assert planned(tmp_path) == []
