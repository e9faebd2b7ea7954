"""Processes of a pool when Ctrl-C comes early, or their parent is killed."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from basil.many.processes import _postponed

SCRIPT = """
import os, signal, sys, time
from pathlib import Path

from basil.many.processes import in_processes

BEGUN, FREE = Path("begun"), Path("free")


def ready():
    signal.signal(signal.SIGINT, lambda *_: FREE.touch())


def work(piece):
    if piece == "mute":
        Path("at work").touch()
        time.sleep(600)
    while not FREE.exists():
        time.sleep(0.01)


def look(running):
    if sys.argv[1] == "killed" and Path("at work").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "interrupted" and BEGUN.exists():
        os.killpg(0, signal.SIGINT)


if __name__ == "__mp_main__" and sys.argv[1] == "interrupted":  # in a process that is not ready yet
    BEGUN.touch()
    time.sleep(2)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    piece = "mute" if sys.argv[1] == "killed" else "patient"
    try:
        list(in_processes(work, [piece], 1, ready, look))
    except KeyboardInterrupt:
        print("stopped")
"""


def outcome(folder: Path, what: str) -> tuple[int, str, str]:
    """Of the script.  Returns once no process holds its pipes."""
    (folder / "script.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, "script.py", what],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode, out, err


def test_ctrl_c_before_a_process_is_ready_is_no_traceback(tmp_path):
    assert outcome(tmp_path, "interrupted") == (0, "stopped\n", "")
    assert (tmp_path / "free").exists()  # it heard of it as soon as it was ready


def test_who_kills_the_parent_ends_its_processes(tmp_path):
    code, _, err = outcome(tmp_path, "killed")
    assert code == -signal.SIGKILL
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_comes_after_what_must_not_be_cut_in_two(number: signal.Signals) -> None:
    steps = []

    def handler(*_: object) -> None:
        steps.append("handled")
        raise KeyboardInterrupt

    def whole() -> None:
        with _postponed(signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
            steps.append("whole")

    before = signal.signal(number, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            whole()
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    assert steps == ["whole", "handled"]
