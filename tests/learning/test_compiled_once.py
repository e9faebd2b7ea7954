"""Processes that want the same code at the same moment."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from basil.learning.cuda.compiled_once import one_before_others

SOON = 30.0  # seconds


def test_one_goes_before_others_who_then_go_together(tmp_path: Path) -> None:
    place, order = tmp_path / "folder" / "lock", list[str]()
    inside, together = threading.Event(), threading.Barrier(4)
    first_may_end = threading.Event()

    def first() -> None:
        with one_before_others(place):
            inside.set()
            assert first_may_end.wait(SOON)
            order.append("first")

    def other() -> None:
        with one_before_others(place):
            order.append("other")
            together.wait(SOON)  # all of them are in here at once

    leader = threading.Thread(target=first)
    leader.start()
    assert inside.wait(SOON)
    others = [threading.Thread(target=other) for _ in range(3)]
    for thread in others:
        thread.start()
    others[0].join(0.2)
    assert order == []  # nobody is past it yet
    first_may_end.set()
    together.wait(SOON)
    for thread in (leader, *others):
        thread.join(SOON)
    assert order == ["first", "other", "other", "other"]


def test_who_dies_holds_nobody_up(tmp_path: Path) -> None:
    place = tmp_path / "lock"
    program = f"""
import time
from pathlib import Path
from basil.learning.cuda.compiled_once import one_before_others
with one_before_others(Path({str(place)!r})):
    print("inside", flush=True)
    time.sleep(600)
"""
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "inside\n"
    passed = threading.Event()

    def other() -> None:
        with one_before_others(place):
            passed.set()

    threading.Thread(target=other, daemon=True).start()
    assert not passed.wait(0.3)
    holder.send_signal(signal.SIGKILL)
    holder.wait(SOON)
    assert passed.wait(SOON)
    holder.stdout.close()


@pytest.mark.parametrize("place", ["file/lock", "lock"])
def test_without_a_lock_nobody_waits(tmp_path: Path, place: str) -> None:
    """A cache that is not ours to write into."""
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "lock").mkdir()
    inside = threading.Barrier(2)

    def enter() -> None:
        with one_before_others(tmp_path / place):
            inside.wait(SOON)  # both of them are in here at once

    other = threading.Thread(target=enter)
    other.start()
    enter()
    other.join(SOON)
    assert not inside.broken
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "lock"]


PROGRAM = """
import json, sys, torch
from torch._dynamo.utils import counters
from basil.learning.cuda.compiled_once import compiled_once

def function(x):
    return (x.sin() * x.exp() + 3).cumsum(0)

sys.stdin.readline()
x = torch.linspace(0, 1, 50)
made = compiled_once(function)(x)
torch.testing.assert_close(made, function(x))
print(json.dumps(counters["inductor"]))
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="PyTorch compiles C++ here")
def test_code_is_made_by_one_process(tmp_path: Path) -> None:
    surroundings = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=surroundings,
        )
        for _ in range(3)
    ]
    for worker in workers:  # all are to begin at once
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    found = [json.loads(worker.communicate(timeout=300)[0]) for worker in workers]
    assert sorted(counts.get("fxgraph_cache_miss", 0) for counts in found) == [0, 0, 1]
