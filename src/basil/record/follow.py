"""A run folder that is still being written, read again and again: each time only what is new.

Nobody who writes is asked or waited for.  So a last line may be cut off, a resumed run may have cut
its files back, and a folder may vanish or hold another run than a moment ago.
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from basil.errors import UserError
from basil.record.read import (
    MARK,
    OWN,
    SELECTION_COLUMNS,
    Run,
    measurement,
    no_selections,
    read_facts,
    read_recipe,
    read_summary,
    selection,
)

PLANNED = "cases.json"  # beside the runs of a comparison or a sweep: which there are to be
ABSENT = -2  # in a round's row: this node took no turn
T = TypeVar("T")


class GrowingFile:
    """The whole lines of a file that is appended to, each once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at, self._file, self._end = 0, 0, b""  # how far, in which file, what stood before it

    def news(self) -> tuple[bool, list[str]]:
        """Is it another file than before, or cut back?  And the lines that are new."""
        try:
            with self.path.open("rb") as file:
                began = self._began_anew(file)
                if began:
                    self._at, self._end = 0, b""
                file.seek(self._at)
                data = file.read()
                self._file = _number(file)
        except OSError:  # not there yet, or no longer
            began, self._at, self._end = self._at > 0, 0, b""
            return began, []
        whole = data[: data.rfind(b"\n") + 1]  # what follows is still being written
        self._at += len(whole)
        self._end = (self._end + whole)[-64:]
        return began, whole.decode("utf-8", "replace").splitlines()

    def _began_anew(self, file: Any) -> bool:
        """A resumed run may have cut the file back, and written further than it was, since then."""
        if not self._at:
            return False
        file.seek(self._at - len(self._end))
        return _number(file) != self._file or file.read(len(self._end)) != self._end


def _number(file: Any) -> int:
    return os.fstat(file.fileno()).st_ino


class Follower:
    """What is known of one run; `look` brings it up to date.

    rows: for each round, by place on the ring, the place of the chosen one, OWN or ABSENT.
    generation: rises whenever what was read before no longer holds.
    """

    def __init__(self, folder: Path, selections: bool = True) -> None:
        self.folder, self._selections = folder, selections
        self.generation = 0
        self._mark: tuple[int, int] | None = None
        self._forget()

    def _forget(self) -> None:
        self.run: Run | None = None
        self.metrics: list[dict[str, Any]] = []
        self.rows: dict[int, NDArray[np.int32]] = {}
        self._places: dict[int, int] = {}
        self._files = [GrowingFile(self.folder / "metrics.jsonl")]
        if self._selections:
            self._files.append(GrowingFile(self.folder / "selections.csv"))

    @property
    def here(self) -> bool:
        return self.run is not None

    @property
    def finished(self) -> bool:
        return self.run is not None and self.run.finished

    def look(self) -> bool:
        """Read what is new.  Was there anything?"""
        began = self._begin()
        if self.run is None:
            return began
        news = [file.news() for file in self._files]
        if any(cut for cut, _ in news):
            self.generation += 1
            run, places = self.run, self._places
            self._forget()
            self.run, self._places = replace(run, metrics=self.metrics), places
            news = [file.news() for file in self._files]
        for (_, lines), take in zip(news, (self._measured, self._chosen), strict=False):
            for line in lines:
                take(line)
        ended = self._end()
        return began or ended or any(lines for _, lines in news)

    def _begin(self) -> bool:
        try:
            state = (self.folder / MARK).stat()
            mark = (state.st_ino, state.st_mtime_ns)
        except OSError:
            mark = None
        if mark == self._mark:
            return False
        was = self.run is not None
        self._forget()
        self._mark = None
        if mark is not None:
            with suppress(UserError):  # its recipe may be a moment behind
                facts, recipe = read_facts(self.folder), read_recipe(self.folder)
                self.run = Run(self.folder, recipe, facts, self.metrics, no_selections(), None)
                self._places = {node: place for place, node in enumerate(facts["order"])}
                self._mark = mark
        changed = was or self.run is not None
        self.generation += changed
        return changed

    def _end(self) -> bool:
        """Has it finished since, or begun again?"""
        assert self.run is not None
        there = (self.folder / "summary.json").is_file()
        if there == self.run.finished:
            return False
        summary = tried(lambda: read_summary(self.folder)) if there else None
        self.run = replace(self.run, summary=summary)
        return True

    def _measured(self, line: str) -> None:
        with suppress(ValueError):
            self.metrics.append(measurement(line))

    def _chosen(self, line: str) -> None:
        if line == SELECTION_COLUMNS:
            return
        try:
            k, node, chosen, _ = selection(line, self._places)
        except ValueError:
            return
        row = self.rows.get(k)
        if row is None:
            row = self.rows[k] = np.full(len(self._places), ABSENT, dtype=np.int32)
        place = self._places[node]
        row[place] = OWN if chosen in (OWN, node) else self._places[chosen]


def planned(folder: Path) -> list[dict[str, Any]]:
    """The runs that a comparison or a sweep is to have; none where nobody has said so."""
    found = tried(lambda: json.loads((folder / PLANNED).read_text(encoding="utf-8")))
    entries = found.get("cases") if isinstance(found, dict) else None
    each_of = entries if isinstance(entries, list) else []
    return [each for each in each_of if isinstance(each, dict) and "folder" in each]


def tried(read: Callable[[], T]) -> T | None:
    """Files may be written this very moment: the next look finds them whole."""
    try:
        return read()
    except (OSError, ValueError, UserError):
        return None
