"""basil sweep: all runs once, one table; failures and lost processes end nothing."""

import csv
import json
import socket
from importlib.util import find_spec
from pathlib import Path

import pytest

from basil.many.sweep import write_table
from basil.many.worker import unpack

from cli_helpers import TINY

SWEEP = (
    TINY
    + """
[sweep]
seeds = [0, 1]

[sweep.grid]
ring.connectivity = [1, 2, 7]
learning.rate = [0.1, 0.3]
"""
)


@pytest.fixture
def swept(tiny):
    (tiny / "grid.toml").write_text(SWEEP)
    return tiny


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "sweep.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def outcomes(folder: Path) -> dict[str, tuple[str, str]]:
    return {row["run"]: (row["model_sha256"], row["accuracy/worst"]) for row in table(folder)}


@pytest.mark.slow
def test_a_sweep_makes_one_table_goes_on_and_says_when_there_is_nothing_to_do(basil, swept):
    words = ["sweep", "grid.toml", "--jobs", "1", "--out", "s"]
    first = basil(*words)
    assert first.code == 1  # S = 7 is too much for a ring of 5
    assert first.err.count("a ring of 5 nodes has only 4 predecessors") == 4
    rows = table(swept / "s")
    assert [(r["ring.connectivity"], r["learning.rate"], r["seed"]) for r in rows[:3]] == [
        ("1", "0.1", "0"),
        ("1", "0.1", "1"),
        ("1", "0.3", "0"),
    ]
    assert len(rows) == 12
    fine = [row for row in rows if not row["error"]]
    assert len(fine) == 8
    assert len({row["model_sha256"] for row in fine}) == 8
    for row in fine:  # the table is what the run folders say
        summary = json.loads((swept / "s" / row["run"] / "summary.json").read_text())
        assert row["model_sha256"] == summary["model_sha256"]
        assert float(row["accuracy/worst"]) == summary["accuracy"]["worst"]
        assert row["messages/count"] == str(summary["messages"]["count"])  # whole numbers stay so
    for said in ("rate 0.1, connectivity 1", "rate 0.3, connectivity 2", "0, 1 (n = 2)"):
        assert said in first.out

    alone = basil(
        "run", "grid.toml", "-s", "ring.connectivity=2", "-s", "learning.rate=0.1", "--json"
    ).json  # grid.toml is a recipe, too
    mine = [r for r in fine if r["ring.connectivity"] == "2" and r["learning.rate"] == "0.1"]
    assert alone["model_sha256"] == mine[0]["model_sha256"]

    before = outcomes(swept / "s")
    again = basil(*words)
    assert "done" not in again.out
    assert "nothing to do: all 8 runs that can be were finished already" in again.out
    assert outcomes(swept / "s") == before

    # Somebody removes one: it alone is run again, and is the same.
    gone = swept / "s" / fine[3]["run"]
    (gone / "summary.json").unlink()
    assert "8 of 12 runs are finished, 1 of them new" in basil(*words).out
    assert outcomes(swept / "s") == before


ROWS = [
    {"learning.rate": 1, "then": "drift", "seed": 0, "run": "a", "accuracy/worst": 0.5},
    {"learning.rate": 0.1, "then": 3, "seed": 1, "run": "b", "error": 'odd, "said" so'},
]


def test_the_table_has_a_cell_for_whatever_any_run_has(tmp_path):
    write_table(ROWS, tmp_path)
    first, second = table(tmp_path)
    assert (first["learning.rate"], first["error"], first["accuracy/worst"]) == ("1", "", "0.5")
    assert (second["error"], second["accuracy/worst"]) == ('odd, "said" so', "")


def test_the_table_as_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert [path.name for path in write_table(ROWS, tmp_path)] == ["sweep.csv", "sweep.parquet"]
    there = parquet.read_table(tmp_path / "sweep.parquet").to_pylist()
    assert there[0] == {**ROWS[0], "learning.rate": 1.0, "error": None}
    # A column has one type: words where there is one among the numbers.
    assert there[1] == {**ROWS[1], "then": "3", "accuracy/worst": None}


def test_what_comes_back_from_a_cluster_ends_what_a_pool_had_begun(tmp_path):
    (tmp_path / "checkpoint.safetensors").write_bytes(b"half of it")
    unpack(tmp_path, {"error.txt": b"it failed there"})
    assert (tmp_path / "checkpoint.safetensors").exists()  # here it may still be gone on with
    unpack(tmp_path, {"summary.json": b"{}", "tensorboard/events": b"some"})
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {
        "summary.json",
        "tensorboard/events",
    }


FAULTY = """
class Faulty:
    def begin(self, folder, recipe, round):
        if recipe["ring"]["connectivity"] == 2 and recipe["seed"] == 1:
            raise ZeroDivisionError("a fault of mine")
    def measured(self, metrics): pass
    def end(self, summary): pass
"""


@pytest.mark.slow
def test_a_run_that_raises_is_reported_and_the_others_are_done(basil, swept, monkeypatch):
    (swept / "mine.py").write_text(FAULTY)
    monkeypatch.syspath_prepend(str(swept))
    answer = basil("sweep", "grid.toml", "--jobs", "1", "--out", "s", "--log", "mine:Faulty")
    assert answer.code == 1
    failed = [row for row in table(swept / "s") if "fault of mine" in row["error"]]
    assert {(r["ring.connectivity"], r["seed"]) for r in failed} == {("2", "1")}
    assert len([row for row in table(swept / "s") if row["model_sha256"]]) == 6
    text = (swept / "s" / failed[0]["run"] / "error.txt").read_text()
    assert "ZeroDivisionError" in text
    assert "mine.py" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nothing.toml"], "recipe 'nothing.toml': there is no such file"),
        (["tiny.toml"], "tiny.toml describes no sweep"),
        (["grid.toml", "--address", "auto"], "--address auto: it goes with --engine ray"),
        (["grid.toml", "--engine", "ray", "--address", ""], "--address is empty"),
    ],
)
def test_a_mistake_is_said_in_one_sentence(refused, swept, words, sentence):
    assert sentence in refused("sweep", *words)


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_it_is_said_how_to_get_it(basil, swept):
    answer = basil("sweep", "grid.toml", "--engine", "ray", "--out", "s")
    assert answer.code == 2
    assert "--engine ray needs Ray: pip install 'basil-fl[ray]'" in answer.err


def test_where_no_cluster_answers_it_is_said_at_once(basil, swept):
    pytest.importorskip("ray")
    with socket.socket() as taken:  # a port on which nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        answer = basil("sweep", "grid.toml", "--engine", "ray", "--address", address)
    assert answer.code == 2
    assert f"basil: --address {address}: no Ray cluster answers there" in answer.err
