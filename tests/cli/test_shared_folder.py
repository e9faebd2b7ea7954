"""A comparison whose runs are at work elsewhere, or whose processes die."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from basil.experiment import Machine, Simulation, set_up
from basil.many.cases import ExecutionSettings, comparison, run_cases
from basil.recipe import load
from basil.record.run_folder import SUMMARY, held

KILLER = """
import os, signal
from pathlib import Path


class Killer:
    def __init__(self): ...

    def begin(self, folder, recipe, round):
        lives = Path("lives")
        left = int(lives.read_text()) - 1
        if left >= 0:
            lives.write_text(str(left))
            os.kill(os.getpid(), signal.SIGKILL)

    def measured(self, metrics): ...
    def end(self, summary): ...
"""


@pytest.mark.slow
def test_a_run_at_work_elsewhere_is_left_to_it_waited_for_and_gone_on_with(tiny):
    none, _ = todo = comparison(load("tiny.toml"), Path("both"), ["basil"], ["none", "gaussian"])
    taken, left = threading.Event(), threading.Event()

    def other():
        """Holds one of the two runs until the rest is done, and then leaves it unfinished."""
        with held(none.folder):
            taken.set()
            left.wait(180)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        assert taken.wait(60)

        def watch(running):
            if none in running:
                left.set()

        with pytest.warns(UserWarning, match="another process has at work: basil-none-seed0"):
            ended = list(run_cases(todo, ExecutionSettings(jobs=1), watch))
    finally:
        left.set()
        thread.join()
    assert [each.case.name for each in ended] == ["basil-gaussian-seed0", "basil-none-seed0"]
    assert all(each.summary is not None and each.new for each in ended)


@pytest.mark.slow
def test_a_run_that_another_process_finishes_first_is_not_said_to_be_new(tiny, monkeypatch):
    todo = comparison(load("tiny.toml"), Path("both"), ["basil"], ["none", "gaussian"])

    def finished_right_after(case):
        if case is todo[0]:
            Simulation(set_up(case.recipe, machine=Machine("cpu"))).run(case.folder)
        return False

    monkeypatch.setattr("basil.many.cases._at_work", finished_right_after)
    ended = list(run_cases(todo, ExecutionSettings(jobs=1)))
    assert all(each.summary is not None for each in ended)
    assert [each.case.name for each in ended if each.new] == ["basil-gaussian-seed0"]


@pytest.mark.slow
def test_two_comparisons_at_once_on_one_folder_share_the_work(tiny):
    words = ["compare", "tiny.toml", "--schemes", "basil", "--attacks", "none", "gaussian"]
    words += ["--seeds", "0", "1", "--jobs", "1", "--out", "both", "-s", "scheme.rounds=40"]
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "basil", *words],
            cwd=tiny,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], "\n".join(err for _, err in answers)
    done = [line.split()[-1] for out, _ in answers for line in out.splitlines() if "done " in line]
    assert sorted(done) == sorted(path.parent.name for path in Path("both").glob(f"*/{SUMMARY}"))
    assert len(done) == 4  # each by one of the two


@pytest.mark.slow
def test_a_run_whose_processes_were_killed_is_tried_again_by_the_next_command(
    basil, tiny, monkeypatch
):
    monkeypatch.syspath_prepend(tiny)
    (tiny / "killer.py").write_text(KILLER)
    (tiny / "lives").write_text("3")
    words = ["compare", "tiny.toml", "--schemes", "basil", "--attacks", "none", "--out", "one"]
    words += ["--no-report", "--log", "killer:Killer"]
    answer = basil(*words)
    assert answer.code == 2
    assert "died again and again; the same command tries it once more" in answer.err
    assert (tiny / "lives").read_text() == "0"
    assert basil(*words).code == 0
