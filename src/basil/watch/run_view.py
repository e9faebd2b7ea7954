"""One run, simulated or a peer's own: ring, choices, curves, log."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from basil.record.follow import ABSENT, Follower
from basil.record.read import metrics_of
from basil.reporting.run_groups import (
    ATTACK_TITLES,
    SCHEME_TITLES,
    SETTINGS,
    attack_name,
    scheme_name,
    setting,
    title,
)
from basil.watch.view import Cursor, Log, Told, View, state_of

MOST_DOTS = 400  # nodes that are drawn one by one; above that the ring is a summary
ARCS = 60  # of such a summary
MOST_POINTS = 600  # of a curve, when a page opens
MOST_ROUNDS = 60  # with their choices, in one answer
FRESH = 10  # rounds that a page is told at once
NOT_DRAWN = {"messages", "evaluations", "steps", "distances"}
NAMED = 6  # nodes that a line of the log names


class RunView:
    """What its folder says."""

    def __init__(self, folder: Path, name: str = "") -> None:
        self.folder, self.name = folder, name
        self._follower = Follower(folder)
        self._generation = -1
        self._changes = 0
        self._state = ""
        self._begin()

    def _begin(self) -> None:
        self.log = Log()
        self._measured = self._told = self._complete = 0
        self._away: set[int] = set()

    def look(self) -> None:
        follower = self._follower
        changed = follower.look()
        if self._generation != follower.generation:
            again = self._generation > 0 and follower.here
            self._generation = follower.generation
            self._begin()
            if again:
                self.log.add("", "the run began again, or went on from an earlier checkpoint")
        state = state_of(self.folder, follower.here, follower.finished)
        if changed or state != self._state:
            self._changes += 1
        if changed and follower.run is not None:
            self._note()
        if state != self._state and follower.here:
            self.log.add("", _said(state), {"finished": "good", "failed": "bad"}.get(state, ""))
        self._state = state

    # -- what a page is told --------------------------------------------------------------------

    def news(self, cursor: Cursor | None) -> tuple[Told | None, Cursor]:
        follower = self._follower
        now = (
            self._generation, self._changes, len(follower.metrics), self.newest, self.log.count
        )  # fmt: skip
        if cursor == now:
            return None, now
        everything = cursor is None or cursor[0] != self._generation
        _, _, points, newest, lines = (0, 0, 0, 0, 0) if everything else cursor or now
        told: Told = {"kind": "run", "state": self._state, "round": self.round}
        if everything:
            told |= {"reset": True, "name": self.name or self.folder.name, **self._setting()}
        first = max(newest + 1, self.newest - FRESH)
        told["points"] = points_of(follower.metrics[points:])
        told["choices"] = self.rounds(first, self.newest)["choices"]
        told["log"] = self.log.since(lines)
        return told, now

    def rounds(self, first: int, last: int) -> Told:
        last = min(last, first + MOST_ROUNDS)
        rows = {k: self._follower.rows[k] for k in range(first, last + 1) if self._has(k)}
        return {"choices": {str(k): self._choices(row) for k, row in rows.items()}}

    def part(self, name: str) -> View | None:
        return self if not name else None

    def _has(self, k: int) -> bool:
        return k in self._follower.rows

    @property
    def newest(self) -> int:
        """The latest round in which somebody chose."""
        return next(reversed(self._follower.rows), 0)

    @property
    def round(self) -> int:
        metrics = self._follower.metrics
        return max(self.newest, metrics[-1]["round"] if metrics else 0)

    def _setting(self) -> Told:
        run = self._follower.run
        if run is None:
            return {"title": "", "settings": [], "rings": [], "byzantine": [], "rounds": 0}
        shown = {name: setting(run, key) for key, name in SETTINGS.items()}
        shown = {
            name.removesuffix("s") if name == "seeds" else name: v for name, v in shown.items()
        }
        nodes = len(run.order)
        places = {node: place for place, node in enumerate(run.order)}
        told: Told = {
            "title": f"{title(scheme_name(run), SCHEME_TITLES)} · "
            f"{title(attack_name(run), ATTACK_TITLES)}",
            "settings": [[name, str(value)] for name, value in shown.items() if value is not None],
            "rounds": setting(run, "rounds") or 0,
            "nodes": nodes,
            "metrics": metrics_of([run]),
            "knows": "byzantine",  # a simulation says who lies
        }
        if nodes > MOST_DOTS:
            lies = np.isin(run.order, sorted(run.byzantine))
            share = [float(part.mean()) for part in np.array_split(lies, ARCS)]
            return {**told, "summary": True, "arcs": share, "lying": len(run.byzantine)}
        rings = [[places[node] for node in ring] for ring in run.rings]
        told |= {"byzantine": sorted(places[node] for node in run.byzantine)}
        return {**told, "names": list(map(str, run.order)), "rings": rings}

    def _choices(self, row: NDArray[np.int32]) -> Any:
        """By place, whose model was taken; of a summary, how often between two arcs."""
        if len(row) <= MOST_DOTS:
            return row.tolist()
        run = self._follower.run
        assert run is not None
        arc = np.empty(len(row), dtype=np.int64)
        for number, part in enumerate(np.array_split(np.arange(len(row)), ARCS)):
            arc[part] = number
        lies = np.isin(run.order, sorted(run.byzantine))
        chooser = np.flatnonzero((row >= 0) & ~lies)
        rows = np.column_stack([arc[row[chooser]], arc[chooser], lies[row[chooser]]])
        pairs, counts = np.unique(rows, axis=0, return_counts=True)
        away = int((row == ABSENT).sum())
        believed = int(lies[row[chooser]].sum())
        edges = np.column_stack([pairs, counts]).tolist()
        return {"edges": edges, "away": away, "believed": believed, "chose": len(chooser)}

    # -- the log --------------------------------------------------------------------------------

    def _note(self) -> None:
        """Measurements and rounds that have come since."""
        follower, run = self._follower, self._follower.run
        assert run is not None
        if not self._told:
            self._told = 1
            who = f"{len(run.order)} nodes, {len(run.byzantine)} of them Byzantine"
            self.log.add("0", f"began: {who}")
        lies = np.isin(run.order, sorted(run.byzantine))
        events: list[tuple[int, int, str, str]] = []
        for entry in follower.metrics[self._measured :]:
            events.append((entry["round"], 1, _measurement(entry), ""))
        self._measured = len(follower.metrics)
        for k in [k for k in follower.rows if k > self._complete]:
            row = follower.rows[k]
            believed = np.flatnonzero((row >= 0) & ~lies & lies[np.maximum(row, 0)])
            if len(believed):
                events.append(
                    (k, 0, f"{_named(run.order, believed)} chose a Byzantine model", "bad")
                )
            away = set(np.flatnonzero(row == ABSENT).tolist())
            for some, what in ((away - self._away, "gone"), (self._away - away, "back")):
                if some:
                    are = "is" if len(some) == 1 else "are"
                    events.append((k, 0, f"{_named(run.order, sorted(some))} {are} {what}", ""))
            self._away, self._complete = away, k
        for k, _, text, tone in sorted(events):
            self.log.add(str(k), text, tone)


def points_of(metrics: Sequence[dict[str, Any]]) -> list[Told]:
    """Of curves; where there are very many, every second or third, and the last."""
    step = -(-len(metrics) // MOST_POINTS) or 1
    kept = list(metrics[::step])
    if metrics and kept[-1] is not metrics[-1]:
        kept.append(metrics[-1])
    return [{key: _short(v) for key, v in entry.items() if key not in NOT_DRAWN} for entry in kept]


def _short(value: Any) -> Any:
    """As many digits as can be seen."""
    if isinstance(value, dict):
        return {key: _short(each) for key, each in value.items()}
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _measurement(entry: dict[str, Any]) -> str:
    accuracy, loss = entry.get("accuracy") or {}, entry.get("loss") or {}
    if accuracy.get("worst") is not None:
        return f"worst accuracy {_percent(accuracy['worst'])}, mean {_percent(accuracy['mean'])}"
    mean = loss.get("mean")
    return "loss is not finite" if mean is None else f"mean loss {mean:.4g}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def _named(order: Sequence[int], places: Iterable[int]) -> str:
    """node 3; nodes 1, 2 and 5; 40 nodes"""
    some = [str(order[place]) for place in places]
    if len(some) == 1:
        return f"node {some[0]}"
    if len(some) > NAMED:
        return f"{len(some)} nodes"
    return f"nodes {', '.join(some[:-1])} and {some[-1]}"


def _said(state: str) -> str:
    return {
        "running": "running",
        "silent": "no news for a minute",
        "stopped": "stopped before its end",
        "failed": "failed: error.txt in its folder says why",
        "finished": "finished",
    }.get(state, state)
