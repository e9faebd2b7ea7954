"""What a page is told: everything at first, then what is new since it was last told.

A cursor says what one page knows.  Views know neither connections nor how many look at them.
"""

import time
from pathlib import Path
from typing import Any, Protocol

Cursor = tuple[int, ...]
Told = dict[str, Any]

QUIET = 60.0  # seconds without a change after which a run that should go on is said to be silent
MOST_LINES = 300  # of the log
WAITING, RUNNING, SILENT, STOPPED, FAILED, FINISHED = (
    "waiting", "running", "silent", "stopped", "failed", "finished"
)  # fmt: skip


class View(Protocol):
    """Something that can be looked at."""

    def look(self) -> None:
        """Read what is new."""

    def news(self, cursor: Cursor | None) -> tuple[Told | None, Cursor]:
        """What to tell a page that knows so much (None: nothing), and what it knows then."""

    def rounds(self, first: int, last: int) -> Told:
        """Who chose whom in these rounds."""

    def part(self, name: str) -> "View | None":
        """One of the runs that it is made of; "": itself."""


def state_of(folder: Path, here: bool, finished: bool) -> str:
    """What becomes of a run, as far as its folder tells."""
    if finished:
        return FINISHED
    if (folder / "error.txt").exists():
        return FAILED
    if not (folder / ".lock").exists():
        return STOPPED if here else WAITING
    return SILENT if here and time.time() - _changed(folder) > QUIET else RUNNING


def _changed(folder: Path) -> float:
    times = [0.0]
    for name in ("run.json", "metrics.jsonl", "selections.csv", "checkpoint.safetensors"):
        try:
            times.append((folder / name).stat().st_mtime)
        except OSError:
            continue
    return max(times)


class Log:
    """The latest events; each is told once to each page."""

    def __init__(self) -> None:
        self.count = 0
        self._lines: list[tuple[str, str, str]] = []

    def add(self, when: str, text: str, tone: str = "") -> None:
        """when: a round or a time of day; tone: "", "bad" or "good"."""
        self.count += 1
        self._lines = [*self._lines, (when, text, tone)][-MOST_LINES:]

    def since(self, count: int) -> list[tuple[str, str, str]]:
        new = self.count - count
        return self._lines[-new:] if new > 0 else []
