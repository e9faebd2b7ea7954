"""Run folders: found at any depth, read when interrupted, refused when damaged."""

from pathlib import Path

import numpy as np
import pytest

from basil.errors import UserError
from basil.record.read import OWN, find_runs, read_run

from fake_runs import write_run


def test_a_run_is_read_whole(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    assert run.finished
    assert run.order == [0, 1, 2, 3, 4, 5]
    assert run.byzantine == {2}
    assert [entry["round"] for entry in run.metrics] == [0, 1, 2]
    assert run.recipe["scheme"]["name"] == "basil"
    assert run.selections.node.tolist() == [0, 1, 3]
    assert run.selections.chosen.tolist() == [5, 0, OWN]
    assert run.selections.node.dtype == np.int64


def test_choices_of_byzantine_nodes_can_be_left_out(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", choices=((1, 2, 1), (1, 3, 2))))
    assert run.selections.byzantine.tolist() == [1, 0]
    assert run.selections.of_benign().node.tolist() == [3]


def test_runs_are_found_below_a_folder_once_and_sorted(tmp_path: Path) -> None:
    write_run(tmp_path / "b" / "deep" / "run")
    write_run(tmp_path / "a")
    runs = find_runs([tmp_path / "b", tmp_path])
    assert [run.folder for run in runs] == [tmp_path / "a", tmp_path / "b" / "deep" / "run"]


@pytest.mark.parametrize("name", ["empty", "absent"])
def test_a_folder_without_run_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=f"{name} holds no run"):
        find_runs([tmp_path / name])
    with pytest.raises(UserError, match=f"{name} holds no run"):
        read_run(tmp_path / name)


@pytest.mark.parametrize("tail", ['{"round": 3, "accu', '{"round": 3, "accuracy": {"worst": 1}'])
def test_a_line_of_metrics_that_was_cut_off_is_ignored(tmp_path: Path, tail: str) -> None:
    folder = write_run(tmp_path / "run", finished=False)
    _append(folder / "metrics.jsonl", tail)
    run = read_run(folder)
    assert not run.finished
    assert [entry["round"] for entry in run.metrics] == [0, 1, 2]


@pytest.mark.parametrize("tail", ["2", "2,1", "2,1,0", "2,1,", "2,1,0,"])
def test_a_selection_that_was_cut_off_is_ignored(tmp_path: Path, tail: str) -> None:
    folder = write_run(tmp_path / "run", finished=False)
    _append(folder / "selections.csv", tail)
    assert len(read_run(folder).selections) == 3


def test_a_last_line_that_lacks_only_its_end_counts(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", finished=False)
    _append(folder / "selections.csv", "2,1,0,0")
    _append(folder / "metrics.jsonl", '{"round": 3}')
    run = read_run(folder)
    assert len(run.selections) == 4
    assert run.metrics[-1]["round"] == 3


def test_a_run_that_has_just_begun_may_lack_everything_measured(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", finished=False)
    (folder / "metrics.jsonl").unlink()
    (folder / "selections.csv").write_text("round,no")
    run = read_run(folder)
    assert run.metrics == []
    assert len(run.selections) == 0


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("run.json", "{", "run.json"),
        ("run.json", "[]", "a JSON object was expected"),
        ("run.json", '{"order": "0,1", "byzantine": []}', "'order' should be a list"),
        ("run.json", '{"order": [0, 0], "byzantine": []}', "names a node twice"),
        ("recipe.toml", "seed = ", "recipe.toml"),
        ("summary.json", '{"scheme": ', "summary.json"),
        ("metrics.jsonl", '{"round": 0}\nnonsense\n{"round": 2}\n', "line 2"),
        ("metrics.jsonl", '{"accuracy": null}\n', "'round' should be a whole number"),
        ("selections.csv", "node,round\n", "the header should be"),
        ("selections.csv", "round,node,chosen,byzantine\n1,0\n1,1,0,0\n", "line 2"),
        ("selections.csv", "round,node,chosen,byzantine\n1,0,77,0\n", "not in the ring's order"),
        ("metrics.jsonl", b"\xff\xfe\n", "metrics.jsonl"),
    ],
)
def test_a_damaged_file_is_named(
    tmp_path: Path, name: str, content: str | bytes, says: str
) -> None:
    folder = write_run(tmp_path / "run")
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=name) as caught:
        read_run(folder)
    assert says in str(caught.value)


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "recipe.toml").unlink()
    with pytest.raises(UserError, match=r"recipe\.toml"):
        read_run(folder)


def _append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)
