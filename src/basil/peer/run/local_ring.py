"""All nodes of a ring as processes of this machine: for a try-out, and for tests.

PyTorch takes seconds to import, so it is imported once, and each node is a fork of that process.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
import tomllib
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from basil import data
from basil.errors import UserError
from basil.experiment.options import options_of
from basil.experiment.participants import choose_byzantine
from basil.foreign import look_in
from basil.peer.members.identity import AUTHORITY, read_certificate
from basil.peer.members.roster import ROSTER, load_roster, recipe_of_run
from basil.peer.run import status
from basil.peer.run.peer import STATE  # so that no fork has to import it
from basil.peer.run.recording import RUN
from basil.peer.run.status import Status, node_folders, number_of
from basil.recipe import Recipe, parse
from basil.record.run_folder import SUMMARY, held
from basil.topology import Ring, agree_on_order

LOG, ALL = "node.log", "all"  # ALL: in the ring's folder, the nodes' runs as one
LOOK = 0.25  # seconds
GRACE = 10.0  # seconds from being told to stop to being killed

Command = Callable[[Sequence[str]], int]
"""The `basil` command: arguments in, exit code out."""


def fork(
    command: Command, words: Sequence[str], log: Path, before: Callable[[], None] = lambda: None
) -> int:
    """Run a command in a process of its own, which writes to a file.  Returns its id.

    Call it before this process has threads of its own.
    """
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    pid = os.fork()
    if pid:
        os.close(output)
        return pid
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to pass on
        os.dup2(output, 1)
        os.dup2(output, 2)
        before()
        code = command(words)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


class LocalRing:
    """The nodes of a ring, each a process."""

    def __init__(self, ring: Path, command: Command) -> None:
        self.folders, self._command = node_folders(ring), command
        self.alive: dict[int, Path] = {}  # pid -> folder
        self.codes: dict[Path, int] = {}

    def start(self, words: Callable[[int], Iterable[str]]) -> None:
        """Those that have not finished.  `words`: the options of each node."""
        for folder in self.folders:
            if finished(folder):
                self.codes[folder] = 0
                continue
            arguments = ["node", "--dir", str(folder), *words(number_of(folder))]
            self.alive[fork(self._command, arguments, folder / LOG)] = folder

    def look(self) -> list[Status | None]:
        """Take note of who has ended; where do all stand?"""
        for pid in list(self.alive):
            done, state = os.waitpid(pid, os.WNOHANG)
            if done:
                self.codes[self.alive.pop(pid)] = os.waitstatus_to_exitcode(state)
        return [status.read(folder) for folder in self.folders]

    def stop(self) -> None:
        """Ask all to end, and insist after a while."""
        for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
            for pid in self.alive:
                os.kill(pid, number)
            until = time.monotonic() + seconds
            while self.alive and time.monotonic() < until:
                self.look()
                time.sleep(LOOK / 5)

    def complaints(self) -> list[str]:
        """What those that failed said last."""
        said = []
        for folder, code in self.codes.items():
            if code not in (0, 130):
                lines = (folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines()
                last = lines[-1] if lines else "it said nothing"
                said.append(f"{folder.name} ended with {code}: {last}")
        return said


def finished(folder: Path) -> bool:
    return (folder / RUN / SUMMARY).exists()


def check_state(ring: Path, resume: bool, fresh: bool) -> None:
    """What earlier runs have left is gone on with, or deleted: as was asked for, never unasked."""
    folders = node_folders(ring)
    begun = [folder for folder in folders if (folder / RUN).exists() or (folder / STATE).exists()]
    if fresh:
        _forget(ring, begun)
    elif all(map(finished, folders)):
        raise UserError(
            f"all nodes of {ring} have finished: --fresh deletes that run and begins anew"
        )
    elif begun and not resume:
        raise UserError(
            f"{ring} holds a run that was begun: --resume goes on with it, --fresh deletes it and"
            " begins anew"
        )
    elif resume and not begun:
        raise UserError(f"{ring} holds no run to go on with: leave --resume out")


def _forget(ring: Path, begun: Iterable[Path]) -> None:
    """Delete what nodes have written; not their keys."""
    away = set(load_roster(ring).ids) - {number_of(folder) for folder in node_folders(ring)}
    if away:  # they remember what was signed, and would take a second version for a lie
        raise UserError(
            f"--fresh: node {min(away)} is not in {ring}; it is for rings of one machine"
        )
    for folder in begun:
        with held(folder):
            for name in (RUN, STATE):
                shutil.rmtree(folder / name, ignore_errors=True)
            for name in (status.STATUS, LOG):
                (folder / name).unlink(missing_ok=True)
    shutil.rmtree(ring / ALL, ignore_errors=True)


def warm_up(ring: Path) -> Recipe:
    """Import and read once what all nodes need; each fork has it then."""
    look_in(ring)
    roster, authority = load_roster(ring), read_certificate(ring / AUTHORITY)
    begun = [folder / STATE for folder in node_folders(ring) if (folder / STATE / ROSTER).exists()]
    text = recipe_of_run(roster, (begun or [ring / STATE])[0], authority)
    recipe = parse(tomllib.loads(text), f"{ring}/roster.toml, recipe")
    data.load(recipe.data.dataset, recipe.seed, **options_of(recipe.data, data.DATASETS, "dataset"))
    return recipe


def drill(recipe: Recipe) -> frozenset[int]:
    """The nodes that lie, where the recipe has an attack: those that would in the simulator."""
    return choose_byzantine(recipe, Ring(agree_on_order(range(recipe.ring.nodes), recipe.seed)))
