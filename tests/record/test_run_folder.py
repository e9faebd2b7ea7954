"""A run folder has one writer."""

import subprocess
import sys
from pathlib import Path

import pytest

from basil.errors import UserError
from basil.experiment import Machine, Simulation, set_up
from basil.many.worker import run_tasks
from basil.recipe import load, to_tree
from basil.record.run_folder import FACTS, FAULT, SUMMARY, held

RECIPE = load("demo", ["scheme.rounds=1", "record.models=false"])


def test_a_second_writer_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with held(folder):
        (folder / FACTS).write_text("of a run that has no checkpoint yet")
        with pytest.raises(UserError, match="run is being written by another process"):
            Simulation(set_up(RECIPE, None, Machine("cpu"))).run(folder)
        [(summary, sentence)] = run_tasks([(to_tree(RECIPE), str(folder))], Machine("cpu"))
        assert summary is None
        assert sentence is not None
        assert sentence.endswith("another process")
        assert (folder / FACTS).read_text() == "of a run that has no checkpoint yet"
    [(summary, _)] = run_tasks([(to_tree(RECIPE), str(folder))], Machine("cpu"))
    assert summary is not None
    assert (folder / SUMMARY).exists()


def test_a_run_that_is_finished_later_keeps_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [(to_tree(RECIPE), str(tmp_path / "run"))]

    def broken(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patch:
        patch.setattr(Simulation, "instants", broken)
        [(summary, sentence)] = run_tasks(tasks, Machine("cpu"))
    assert summary is None
    assert sentence == "RuntimeError: a fault of ours (the traceback is in its error.txt)"
    assert "a fault of ours" in (tmp_path / "run" / FAULT).read_text()
    [(summary, _)] = run_tasks(tasks, Machine("cpu"))
    assert summary is not None
    assert not (tmp_path / "run" / FAULT).exists()


def test_who_is_killed_lets_go(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from basil.record.run_folder import held\n"
        "with held(Path(sys.argv[1])): print('here', flush=True); time.sleep(60)"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    with writer:
        assert writer.stdout.readline() == "here\n"
        with pytest.raises(UserError), held(tmp_path):
            pass
        writer.kill()
    with held(tmp_path):
        assert writer.returncode != 0
