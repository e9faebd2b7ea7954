"""Callbacks hear of a run what its folder says, whole or interrupted."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import basil
from basil.errors import UserError
from basil.experiment import Hooks, Interrupted, Simulation, resume, set_up
from basil.recipe import parse, to_tree
from basil.record.callback import flat, named
from basil.record.tensorboard import TensorBoard

TREE: dict[str, Any] = {
    "data": {"dataset": "synthetic", "samples": 200},
    "ring": {"nodes": 5, "byzantine": 1, "connectivity": 2},
    "scheme": {"rounds": 4},
    "learning": {"model": "softmax", "batch": 8},
    "attack": {"name": "gaussian"},
    "record": {"every": 2},
}


class Ears:
    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def begin(self, folder: Path, recipe: dict[str, Any], round: int) -> None:
        self.heard.append(("begin", (folder, recipe["scheme"]["name"], round)))

    def measured(self, metrics: dict[str, Any]) -> None:
        self.heard.append(("measured", metrics))

    def end(self, summary: dict[str, Any]) -> None:
        self.heard.append(("end", summary))


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_callback_hears_the_beginning_every_measurement_and_the_end(tmp_path: Path) -> None:
    ears = Ears()
    result = basil.run(TREE, out=tmp_path / "run", callbacks=[ears])
    first, *middle, last = ears.heard
    assert first == ("begin", (tmp_path / "run", "basil", 0))
    assert [heard for _, heard in middle] == metrics(tmp_path / "run")
    assert [heard["round"] for _, heard in middle] == [0, 2, 4]
    assert last == ("end", result.summary)


def test_an_interrupted_run_begins_again_where_it_stands(tmp_path: Path) -> None:
    before, after = Ears(), Ears()
    turns = iter(range(100))
    experiment = set_up(parse(TREE))
    with pytest.raises(Interrupted):  # in the third round: 4 benign turns make a round
        Simulation(experiment).run(
            tmp_path / "run", Hooks(stop=lambda: next(turns) > 12, callbacks=[before])
        )
    assert before.heard[-1][0] == "measured"  # no end
    resume(tmp_path / "run", hooks=Hooks(callbacks=[after]))
    kind, (_, _, k) = after.heard[0]
    assert kind == "begin"
    assert 0 < k < 4
    rounds = [heard["round"] for what, heard in before.heard + after.heard if what == "measured"]
    assert rounds == [entry["round"] for entry in metrics(tmp_path / "run")]


def test_nested_values_become_paths_and_words_are_left_out() -> None:
    assert flat({"a": {"b": 1, "c": {"d": 0.5}}, "name": "x", "flag": True, "none": None}) == {
        "a/b": 1.0,
        "a/c/d": 0.5,
    }


def test_a_callback_is_found_by_module_and_name() -> None:
    assert named("basil.record.tensorboard:TensorBoard") is TensorBoard
    for wrong, sentence in (
        ("TensorBoard", "write it as module:name"),
        ("basil.record.tensorboard:Board", "basil.record.tensorboard has no Board"),
        ("basil.nowhere:Thing", "No module named 'basil.nowhere'"),
    ):
        with pytest.raises(UserError, match=sentence):
            named(wrong)


def test_without_tensorboard_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"pip install 'basil-fl\[tensorboard\]'"):
        TensorBoard()


@pytest.mark.filterwarnings("default")  # of TensorBoard's own making
def test_tensorboard_has_what_the_run_folder_has(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    basil.run(parse(to_tree(parse(TREE))), out=tmp_path / "run", callbacks=[TensorBoard()])
    log = events.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    log.Reload()
    drawn = [(each.step, each.value) for each in log.Scalars("accuracy/worst")]
    assert drawn == [
        (entry["round"], pytest.approx(entry["accuracy"]["worst"]))
        for entry in metrics(tmp_path / "run")
    ]
    assert {"loss/mean", "bytes", "virtual_seconds"} <= set(log.Tags()["scalars"])
