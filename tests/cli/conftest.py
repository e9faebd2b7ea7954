"""The command in this process, on rings that are done in a tenth of a second."""

import signal

import pytest
import torch

from basil.cli import main

from cli_helpers import TINY, Answer


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A folder with tiny.toml to work in; afterwards signals and threads are as before."""
    (tmp_path / "tiny.toml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # of the terminal that the tests are called from
    threads = torch.get_num_threads()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield tmp_path
    torch.set_num_threads(threads)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def basil(tiny, capsys):
    """basil("run", "tiny.toml") -> its exit code and what it printed."""

    def command(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Answer(code, *capsys.readouterr())

    return command


@pytest.fixture
def refused(basil):
    """The sentence of a command that is refused: exit code 2 and one line, no more."""

    def command(*words):
        answer = basil(*words)
        assert answer.code == 2
        assert answer.out == ""
        lines = [line for line in answer.err.splitlines() if not line.startswith("warning: ")]
        assert len(lines) == 1, answer.err
        assert lines[0].startswith("basil: ")
        return lines[0].removeprefix("basil: ")

    return command
