"""A ring of real machines, as the members whose folders lie on this machine see it.

Nobody is asked over the network.  A member knows of others what they have signed and sent to it,
who was silent, and who was proven to lie; it writes that into its own folder, and this reads it.
"""

import time
from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from basil.peer.members.identity import CERTIFICATE, node_of, read_certificate
from basil.peer.members.roster import ROSTER, Roster, load_roster
from basil.peer.run.recording import RUN
from basil.peer.run.status import OLD, Status, node_folders, read
from basil.record.follow import Follower, tried
from basil.watch.run_view import FRESH, MOST_ROUNDS, points_of
from basil.watch.view import FINISHED, RUNNING, SILENT, WAITING, Cursor, Log, Told, View

LATE = 2  # rounds behind the others
T = TypeVar("T")


@dataclass(frozen=True)
class Known:
    """All that the members of this machine know at one moment."""

    statuses: dict[int, Status]
    rounds: dict[int, int]  # of each node the latest that it has finished, if anybody knows
    accused: dict[int, list[int]]  # whom these members have seen proven to lie
    missed: dict[int, list[int]]  # whom these members wait for
    revoked: frozenset[int]

    @property
    def newest(self) -> int:
        return max(self.rounds.values(), default=0)


class RingView:
    """The folder of a ring, or of one member."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        members = node_folders(folder)
        self.folders = {node_of(read_certificate(each / CERTIFICATE)): each for each in members}
        self._runs = {node: Follower(each / RUN) for node, each in self.folders.items()}
        self._log, self._states = Log(), dict[int, str]()
        self._generation, self._nodes, self._changes = 0, list[Told](), 0
        self._roster: Roster | None = None
        self._roster_of: float | None = None
        self._order: list[int] = []
        self._turn = -1
        self._begin()

    def _begin(self) -> None:
        self._read = dict.fromkeys(self._runs, 0)  # how many lines of each node's metrics
        self._open: dict[int, list[dict[str, Any]]] = {}
        self._points: list[dict[str, Any]] = []
        self._rows: dict[int, Any] = {}

    # -- reading ---------------------------------------------------------------------------------

    def look(self) -> None:
        before = [run.generation for run in self._runs.values()]
        for run in self._runs.values():
            run.look()
        self._read_roster()
        order = self._ring_order()
        if before != [run.generation for run in self._runs.values()] or order != self._order:
            self._generation, self._order = self._generation + 1, order
            self._begin()
        known = self._known()
        self._measure(known)
        self._merge()
        nodes = [self._node(node, known) for node in order]
        if nodes != self._nodes:
            self._note(nodes)
            self._nodes, self._changes = nodes, self._changes + 1
        self._turn = self._next(known)

    def _read_roster(self) -> None:
        when = tried(lambda: (self.folder / ROSTER).stat().st_mtime)
        if when != self._roster_of:  # its signature is checked once
            self._roster_of = when
            self._roster = tried(lambda: load_roster(self.folder)) or self._roster

    def _ring_order(self) -> list[int]:
        for run in self._runs.values():
            if run.run is not None:
                return run.run.order
        ids = [member.id for member in self._roster.members] if self._roster else []
        return ids or sorted(self.folders)

    def _statuses(self) -> dict[int, Status]:
        found = {node: tried(partial(read, folder)) for node, folder in self.folders.items()}
        return {node: status for node, status in found.items() if status is not None}

    def _known(self) -> Known:
        statuses = self._statuses()
        rounds: dict[int, int] = {}
        accused: dict[int, list[int]] = {}
        missed: dict[int, list[int]] = {}
        for node, status in statuses.items():
            for other, k in status.heard.items():
                if other not in self.folders:
                    rounds[other] = max(k, rounds.get(other, 0))
            for other in status.excluded:
                accused.setdefault(other, []).append(node)
            for other in status.missing if status.phase != "done" else ():
                missed.setdefault(other, []).append(node)
        rounds |= {node: status.round for node, status in statuses.items()}
        revoked = frozenset(self._roster.revoked if self._roster else ())
        return Known(statuses, rounds, accused, missed, revoked)

    def _measure(self, known: Known) -> None:
        """A point is whole once every benign node has it, or somebody is two rounds further."""
        lying = {node for node, status in known.statuses.items() if status.attack != "none"}
        for node, run in self._runs.items():
            for entry in run.metrics[self._read[node] :] if node not in lying else ():
                self._open.setdefault(entry["round"], []).append(entry)
            self._read[node] = len(run.metrics)
        newest = max(self._open, default=0)
        for k in sorted(self._open):
            entries = self._open[k]
            if len(entries) < len(self._runs.keys() - lying) and k > newest - 2:
                continue
            del self._open[k]
            self._points.append(self._point(k, entries))

    def _point(self, k: int, entries: list[dict[str, Any]]) -> Told:
        point: Told = {"round": k, "seconds": max(entry["seconds"] for entry in entries)}
        spent = [bisect_right(run.metrics, k, key=_round) for run in self._runs.values()]
        runs = zip(self._runs.values(), spent, strict=True)
        point["bytes"] = sum(run.metrics[count - 1]["bytes"] for run, count in runs if count)
        for what, worst in (("accuracy", min), ("loss", max)):
            values = [(entry.get(what) or {}).get("worst") for entry in entries]
            known = [value for value in values if value is not None]
            if known and len(known) == len(values):
                point[what] = {"worst": worst(known), "mean": sum(known) / len(known)}
        return point

    def _merge(self) -> None:
        """Each member has its own choices only."""
        first = max(0, max(self._rows, default=0) - LATE)
        for k in sorted({k for run in self._runs.values() for k in run.rows if k >= first}):
            rows = [run.rows[k] for run in self._runs.values() if k in run.rows]
            self._rows[k] = np.maximum.reduce(rows).tolist()

    # -- judging ---------------------------------------------------------------------------------

    def _node(self, node: int, known: Known) -> Told:
        status, member = known.statuses.get(node), self._roster and self._roster.member(node)
        round = known.rounds.get(node)
        evidence = []
        if node in known.revoked:
            evidence.append("revoked")
        if by := known.accused.get(node):
            evidence.append(f"proven to have lied ({_count(len(by), 'member')} here)")
        if by := known.missed.get(node):
            evidence.append(f"{_count(len(by), 'member')} here did not hear from it")
        if status is not None:
            evidence += [f"lies, for a drill: {status.attack}"] * (status.attack != "none")
            evidence += [f"refused {_count(status.refused, 'message')}"] * (status.refused > 0)
            evidence += [f"cannot send ({status.failures})"] * (status.failures > 0)
        return {
            "name": str(node),
            "address": member.address if member else "",
            "here": node in self.folders,
            "state": self._state(node, status, known),
            "phase": status.phase if status else "",
            "round": round,
            "lag": None if round is None else known.newest - round,
            "turn": status.turn if status else None,
            "accuracy": status.accuracy if status else None,
            "chose": status.selected if status else None,
            "evidence": ", ".join(evidence),
            "lies": status is not None and status.attack != "none",
        }

    def _state(self, node: int, status: Status | None, known: Known) -> str:
        if node in known.accused or node in known.revoked:
            return "excluded"
        if status is not None and status.phase == "done":
            return "done"
        if status is not None and (
            status.phase in ("stopped", "alone") or time.time() - status.written > OLD
        ):
            return "gone"
        if node in known.missed:
            return "suspected"
        round = known.rounds.get(node)
        if round is None:
            return "waiting" if node in self.folders else "unknown"
        return "late" if known.newest - round >= LATE else "ok"

    def _next(self, known: Known) -> int:
        """On whose place the turn is: after the one that is furthest."""
        places = {node: place for place, node in enumerate(self._order)}
        done = [(k, places[node]) for node, k in known.rounds.items() if node in places and k]
        training = any(status.phase == "training" for status in known.statuses.values())
        return (max(done)[1] + 1) % len(places) if done and training else -1

    def _note(self, nodes: list[Told]) -> None:
        now = time.strftime("%H:%M:%S")
        for node in nodes:
            what = node["phase"] if node["state"] in ("ok", "waiting") else node["state"]
            what = FINISHED if what == "done" else what
            name, before = int(node["name"]), self._states.get(int(node["name"]))
            if what and what != before and (before is not None or what != "unknown"):
                bad = node["state"] in ("excluded", "gone", "suspected")
                said = f"node {name}: {what}"
                if bad and node["evidence"]:
                    said += f", {node['evidence']}"
                self._log.add(now, said, "bad" if bad else "")
            self._states[name] = what

    # -- telling ---------------------------------------------------------------------------------

    @property
    def newest(self) -> int:
        return max(self._rows, default=0)

    def news(self, cursor: Cursor | None) -> tuple[Told | None, Cursor]:
        now = (
            self._generation, self._changes, len(self._points), self.newest, self._log.count
        )  # fmt: skip
        if cursor == now:
            return None, now
        everything = cursor is None or cursor[0] != self._generation
        _, changes, points, newest, lines = (0, -1, 0, 0, 0) if everything else cursor or now
        states = {status["phase"] for status in self._nodes if status["here"]}
        told: Told = {"kind": "ring", "state": self._all(states), "turn": self._turn}
        told["round"] = max((node["round"] or 0 for node in self._nodes), default=0)
        if everything:
            run = self._roster.run if self._roster else ""
            told |= {"reset": True, "name": self.folder.resolve().name, "title": "Ring of peers"}
            told["settings"] = [["ring", run], ["members", str(len(self._order))]]
            here = ", ".join(map(str, sorted(self.folders)))
            told["settings"] += [["seen by", f"node {here}" if len(self._runs) == 1 else here]]
            told |= {"names": list(map(str, self._order)), "rings": [list(range(len(self._order)))]}
            told |= {"byzantine": [], "rounds": self._rounds(), "nodes": len(self._order)}
        if changes != self._changes:
            told["members"] = self._nodes
        told["points"] = points_of(self._points[points:])
        # A late one may have added to rounds that were told before.
        first = max(newest - LATE, self.newest - FRESH) if newest else self.newest - FRESH
        told["choices"] = self.rounds(first, self.newest)["choices"]
        told["log"] = self._log.since(lines)
        return told, now

    def _rounds(self) -> int:
        return max((status.rounds for status in self._statuses().values()), default=0)

    def _all(self, phases: set[str]) -> str:
        if phases == {"done"}:
            return FINISHED
        if not phases - {""}:
            return WAITING
        left = ("gone", "excluded", "done")
        gone = all(node["state"] in left for node in self._nodes if node["here"])
        return SILENT if gone else RUNNING

    def rounds(self, first: int, last: int) -> Told:
        asked = range(max(1, first), min(last, first + MOST_ROUNDS) + 1)
        return {"choices": {str(k): self._rows[k] for k in asked if k in self._rows}}

    def part(self, name: str) -> View | None:
        return self if not name else None


def _round(entry: dict[str, Any]) -> int:
    return int(entry["round"])


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
