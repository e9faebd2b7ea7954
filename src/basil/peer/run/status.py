"""Where a node stands, in a file of its own folder that anybody with access to it can look at.

It is written anew after each turn.  Nothing that a node does depends on it.
"""

import contextlib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from basil.errors import UserError
from basil.host import host
from basil.peer.members.roster import ROSTER, load_roster
from basil.record.run_folder import write_json

STATUS = "status.json"
OLD = 30.0  # seconds after which a node that says nothing new may be stuck


@dataclass
class Status:
    """Of one node."""

    node: int
    pid: int
    phase: str = "starting"
    round: int = 0  # the latest that it has finished
    rounds: int = 0
    turn: float = 0.0  # real seconds of its last turn
    patience: float = 0.0  # real seconds that it gives others for one
    accuracy: float | None = None
    selected: int | None = None  # whose model it went on from
    missing: list[int] = field(default_factory=list)  # who should have spoken and has not
    excluded: list[int] = field(default_factory=list)  # proven to have lied
    refused: int = 0  # messages that were not taken
    failures: int = 0  # attempts to send that failed on this machine
    attack: str = "none"
    written: float = 0.0  # wall clock, for the reader only
    heard: dict[int, int] = field(default_factory=dict)  # of whom, and of which round at last

    def write(self, folder: Path) -> None:
        self.written = host.time()
        with contextlib.suppress(OSError):  # a full disk is the checkpoint's to complain about
            write_json(folder / STATUS, vars(self))


def read(folder: Path) -> Status | None:
    """The status in a node's folder; None if it has not run yet."""
    try:
        tree: dict[str, Any] = json.loads((folder / STATUS).read_text(encoding="utf-8"))
        tree["heard"] = {int(node): k for node, k in tree.get("heard", {}).items()}
        return Status(**tree)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{folder / STATUS} is no status of a node: {error}") from error


def node_folders(ring: Path) -> list[Path]:
    """The folders of the nodes in a ring's folder, by number; of a node's own folder, that one."""
    if (ring / "tls.key").exists():
        return [ring]
    found = [folder for folder in ring.glob("node-*") if (folder / "tls.key").exists()]
    if not found:
        raise UserError(f"{ring} holds no nodes: make them with basil peers init --dir {ring}")
    return sorted(found, key=number_of)


def number_of(folder: Path) -> int:
    """ring/node-3 -> 3"""
    return int(folder.name.removeprefix("node-"))


def revoked_in(folder: Path) -> tuple[int, ...]:
    """Who was revoked, by the roster in this folder, if there is one yet."""
    return load_roster(folder).revoked if (folder / ROSTER).exists() else ()


HEADER = ("node", "state", "round", "turn", "accuracy", "selected", "missing", "notes")


def rows(
    statuses: Iterable[Status | None], folders: Iterable[Path], revoked: Collection[int] = ()
) -> list[tuple[str, ...]]:
    """A table for people, one row a node."""
    made: list[tuple[str, ...]] = []
    for status, folder in zip(statuses, folders, strict=True):
        name = folder.resolve().name.removeprefix("node-")
        if status is None:
            note = "revoked" if name in map(str, revoked) else ""
            made.append((name, "not started", "", "", "", "", "", note))
            continue
        s = status
        quiet = host.time() - s.written > OLD and s.phase != "done"
        notes = ["revoked"] if s.node in revoked else []
        notes += [f"attack {s.attack}"] if s.attack != "none" else []
        notes += [f"excluded {_list(s.excluded)}"] if s.excluded else []
        notes += [f"refused {s.refused}"] if s.refused else []
        notes += [f"cannot send {s.failures}"] if s.failures else []
        made.append(
            (
                name,
                f"{s.phase}?" if quiet else s.phase,
                f"{s.round}/{s.rounds}",
                f"{s.turn * 1000:.0f} ms" if s.turn else "",
                "" if s.accuracy is None else f"{s.accuracy:.1%}",
                "" if s.selected is None else str(s.selected),
                _list(s.missing),
                ", ".join(notes),
            )
        )
    return made


def _list(nodes: Iterable[int]) -> str:
    return " ".join(map(str, nodes))
