"""The list of mutants fits the code, and the runner tells the killed from the survivors."""

import ast
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from mutants.run import PACKAGE, ROOT, Mutant, read

RUN = ROOT / "tests/mutants/run.py"
MUTANTS = read(RUN.with_name("mutants.toml"))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutant_is_a_change_of_the_code_as_it_is(mutant: Mutant) -> None:
    text = (ROOT / PACKAGE / mutant.path).read_text()
    planted = mutant.planted(text)
    assert planted is not None, "its text must stand in the file exactly once"
    assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(text))
    assert all((ROOT / test).is_file() for test in mutant.tests)


def test_no_two_mutants_are_the_same() -> None:
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1
    assert max(Counter((m.path, m.old, m.new) for m in MUTANTS).values()) == 1


LIST = """
[[file]]
path = "half.py"
tests = ["test_half.py"]
[file.mutants]
"a third" = ["x / 2", "x / 3"]
"rounded" = ["x / 2", "x // 2"]
"no longer there" = ["x * 2", "x * 3"]
"cannot be read" = ["def half", "def half half"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A package of one function, and a test that does not notice everything."""
    for file, text in {
        "src/basil/__init__.py": "",
        "src/basil/half.py": "def half(x):\n    return x / 2\n",
        "tests/test_half.py": (
            "from basil.half import half\n\n\ndef test_half():\n    assert half(4) == 2\n"
        ),
        "tests/mutants/mutants.toml": LIST,
        "tests/mutants/run.py": RUN.read_text().replace(', "torch"', ""),  # nobody needs it here
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    return tmp_path


def start(project: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "tests/mutants/run.py", *arguments]
    return subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True)


def test_killed_and_survived_are_told_apart(project: Path) -> None:
    process = start(project)
    output, _ = process.communicate(timeout=300)
    outcomes = {line[5:] for line in output.splitlines() if line[:4].strip().isdigit()}
    assert outcomes >= {
        "killed   half.py: a third",
        "SURVIVED half.py: rounded",
        "STALE    half.py: no longer there",
        "BROKEN   half.py: cannot be read",
    }
    assert "1 of 4 killed, 1 stale, 1 broken" in output
    assert process.returncode == 1
    assert (project / "src/basil/half.py").read_text().endswith("x / 2\n")  # as it was


def test_one_can_be_asked_for(project: Path) -> None:
    process = start(project, "--only", "a third")
    output, _ = process.communicate(timeout=300)
    assert "1 of 1 killed" in output
    assert process.returncode == 0


def test_tests_that_fail_anyway_kill_nobody(project: Path) -> None:
    (project / "tests/test_half.py").write_text("def test_half():\n    assert False\n")
    process = start(project)
    output, _ = process.communicate(timeout=300)
    assert "must pass before" in output
    assert process.returncode == 2


HANGS = """
import os, pathlib, time
from basil.half import half


def test_half():
    if half(4) != 2:
        pathlib.Path("new").write_text(str(os.getpid()))
        os.rename("new", "begun")
        time.sleep(600)
"""


def test_ctrl_c_ends_what_is_under_way_and_says_how_far_it_came(project: Path) -> None:
    (project / "tests/test_half.py").write_text(HANGS)
    process = start(project, "--jobs", "1")
    begun, until = project / "begun", time.monotonic() + 120
    while not begun.exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert "interrupted" in output
    assert "of 0 killed" in output
    assert process.returncode == 130
    psutil = pytest.importorskip("psutil")
    test = int(begun.read_text())
    assert not psutil.pid_exists(test) or psutil.Process(test).status() == psutil.STATUS_ZOMBIE
