"""Many runs: a cell for each, which fills while it goes on."""

import time
from pathlib import Path
from typing import Any

from basil.record.follow import PLANNED, Follower, planned
from basil.record.read import MARK, Run
from basil.reporting.run_groups import (
    ATTACK_TITLES,
    SCHEME_TITLES,
    attack_name,
    cases,
    scheme_name,
    setting,
    title,
)
from basil.watch.run_view import RunView
from basil.watch.view import FINISHED, WAITING, Cursor, Told, View, state_of

SEARCH = 2.0  # seconds from one search for new runs to the next
MOST_NAMED = 300  # runs that are named by what they differ in: that takes their square
SPARK = 24  # points of a cell's curve


class CollectionView:
    """All runs below a folder, and those that are planned there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runs: dict[str, Follower] = {}
        self._planned: dict[str, Told] = {}
        self._labels: dict[str, tuple[str, str]] = {}  # of a run: scheme and attack
        self._cells: dict[str, Told] = {}
        self._changed: dict[str, int] = {}  # of a cell: when, counted in looks
        self._looks = self._shape = 0
        self._searched = -SEARCH

    def look(self) -> None:
        self._looks += 1
        if time.monotonic() - self._searched >= SEARCH:
            self._searched = time.monotonic()
            self._search()
        for follower in self._runs.values():
            if not follower.finished:
                follower.look()
        for name in [*self._planned, *(name for name in self._runs if name not in self._planned)]:
            cell = self._cell(name)
            if self._cells.get(name) != cell:
                self._cells[name], self._changed[name] = cell, self._looks

    def _search(self) -> None:
        marks = sorted(self.folder.rglob(MARK))
        found = {str(mark.parent.relative_to(self.folder)): mark.parent for mark in marks}
        before = set(self._runs), set(self._planned)
        for name in self._runs.keys() - found.keys():
            del self._runs[name]
        for name, folder in found.items():
            follower = self._runs.setdefault(name, Follower(folder, selections=False))
            if follower.finished:  # it may have been deleted and begun anew
                follower.look()
        self._planned = {
            str((plan.parent / str(entry["folder"])).relative_to(self.folder)): entry
            for plan in sorted(self.folder.rglob(PLANNED))
            for entry in planned(plan.parent)
            if _is_name(entry["folder"])
        }
        if before != (set(self._runs), set(self._planned)):
            self._shape += 1
            self._labels = self._named()
            gone = self._cells.keys() - self._runs.keys() - self._planned.keys()
            for name in gone:
                del self._cells[name], self._changed[name]

    def _named(self) -> dict[str, tuple[str, str]]:
        """By what they differ in; where there are very many, by scheme and attack alone."""
        for follower in self._runs.values():
            follower.look()
        runs = {name: each.run for name, each in self._runs.items() if each.run is not None}
        if len(runs) > MOST_NAMED:
            return {name: _plain(run) for name, run in runs.items()}
        names = {run.folder: name for name, run in runs.items()}
        return {
            names[run.folder]: (case.scheme, case.attack)
            for case in cases(runs.values())
            for run in case.runs
        }

    def _cell(self, name: str) -> Told:
        follower, plan = self._runs.get(name), self._planned.get(name, {})
        run = follower.run if follower else None
        scheme, attack = self._labels.get(name) or (
            _plain(run)
            if run is not None
            else (
                title(str(plan.get("scheme", "")), SCHEME_TITLES),
                title(str(plan.get("attack", "none")), ATTACK_TITLES),
            )
        )
        cell: Told = {"name": name, "scheme": scheme, "attack": attack, "state": WAITING}
        cell |= {"seed": plan.get("seed"), "rounds": plan.get("rounds", 0), "round": 0}
        if follower is None or run is None:
            return cell
        metrics = follower.metrics
        finished = follower.finished
        state = FINISHED if finished else state_of(follower.folder, True, False)
        step = max(1, len(metrics) // SPARK)
        curve = [_worst(entry) for entry in [*metrics[::step], *metrics[-1:]]]
        return cell | {
            "state": state,
            "seed": setting(run, "seed"),
            "rounds": setting(run, "rounds") or 0,
            "round": metrics[-1]["round"] if metrics else 0,
            "worst": _worst(metrics[-1]) if metrics else None,
            "loss": (metrics[-1].get("loss") or {}).get("mean") if metrics else None,
            "curve": curve,
        }

    def news(self, cursor: Cursor | None) -> tuple[Told | None, Cursor]:
        now = (self._shape, self._looks)
        everything = cursor is None or cursor[0] != self._shape
        since = 0 if everything or cursor is None else cursor[1]
        cells = [cell for name, cell in self._cells.items() if self._changed[name] > since]
        if not everything and not cells:
            return None, now
        told: Told = {"kind": "collection", "cells": cells}
        if everything:
            told |= {"reset": True, "name": self.folder.resolve().name}
        return told, now

    def rounds(self, first: int, last: int) -> Told:
        return {"choices": {}}

    def part(self, name: str) -> View | None:
        if not name:
            return self
        return RunView(self._runs[name].folder, name) if name in self._runs else None


def _plain(run: Run) -> tuple[str, str]:
    return title(scheme_name(run), SCHEME_TITLES), title(attack_name(run), ATTACK_TITLES)


def _worst(entry: dict[str, Any]) -> float | None:
    worst = (entry.get("accuracy") or {}).get("worst")
    return None if worst is None else round(worst, 4)


def _is_name(folder: object) -> bool:
    """Of a folder beside the plan, and of none elsewhere."""
    return isinstance(folder, str) and Path(folder).name == folder
