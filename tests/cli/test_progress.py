"""Bars on terminals of any width."""

import io
import re
from pathlib import Path

import pytest

from basil.cli.progress import comparison_bar
from basil.many.cases import Case
from basil.recipe import parse
from basil.record.progress_bar import run_bar
from basil.record.recorder import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_of(columns: int, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """In the test itself: pytest takes stderr back when a fixture is done."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    return stream


def frames(terminal: Terminal) -> list[str]:
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", terminal.getvalue())
    return [line.rstrip() for line in re.split(r"[\r\n]+", plain) if line.strip()]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_bar_of_a_run_keeps_its_bar(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    terminal = terminal_of(columns, monkeypatch)
    with run_bar() as show:
        assert show is not None
        show(
            Progress(
                round=120, rounds=500, turns=990, all_turns=1000, accuracy=0.975, success=0.123
            )
        )
    screen = frames(terminal)
    # Rich colours a bar in parts.
    assert "".join(screen).count("━") >= columns // 5
    assert all(len(line) <= columns for line in screen)
    assert any("round 120" in line for line in screen)
    assert any("worst 97.5%, backdoor 12.3%" in line for line in screen) == (columns > 40)


def test_the_bar_of_a_comparison_keeps_its_bar(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    terminal = terminal_of(80, monkeypatch)
    case = Case(parse({}), tmp_path / "basil-layer-sign-flip-seed0")
    with comparison_bar([case] * 4) as watch:
        watch([case] * 4)
    screen = frames(terminal)
    assert "".join(screen).count("━") >= 16
    assert all(len(line) <= 80 for line in screen)
    assert any(case.name in line for line in screen)
