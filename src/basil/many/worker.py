"""What a process does that runs cases of a comparison, a figure or a sweep."""

import os
import signal
import socket
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from basil.errors import UserError
from basil.experiment import (
    Hooks,
    Interrupted,
    Machine,
    Setup,
    Simulation,
    choose_device,
    set_up,
    take_up,
)
from basil.foreign import Whereabouts, find_again
from basil.many.round_robin import AT_ONCE, Sharing, round_robin
from basil.recipe import code_of, parse
from basil.record.callback import named
from basil.record.disk import replacing
from basil.record.run_folder import (
    CHECKPOINT,
    FACTS,
    FAULT,
    SUMMARY,
    InUse,
    drop_leftovers,
    held,
)

Task = tuple[dict[str, Any], str]
"""A recipe as a tree, and its run folder."""
Finished = tuple[dict[str, Any] | None, str | None]
"""A summary, or the sentence that says why there is none."""
HERE = Whereabouts()
ELSEWHERE = "it is the work of another process"
"""Which has it in hand, or has finished it: another command, or one that died over another task."""
_stopping = False


def ready(compilers: int = 1) -> None:
    """One thread, and on Ctrl-C stop at the next turn with a checkpoint.

    `compilers`: processes that compile for this one.  By default it would have one for each core.
    """
    torch.set_num_threads(1)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(compilers))

    def stop(*_: object) -> None:
        global _stopping
        _stopping = True

    signal.signal(signal.SIGINT, stop)


def run_tasks(
    tasks: Sequence[Task],
    machine: Machine,
    log: Sequence[str] = (),
    at_once: int = AT_ONCE,
    places: Whereabouts = HERE,
) -> list[Finished]:
    """Run some tasks by turns; what became of each of them.  None ends the others.

    places: where others' code is found that the recipes name.
    """
    find_again(places)
    finished: list[Finished] = [(None, "interrupted")] * len(tasks)
    turns = sum(tree["ring"]["nodes"] * tree["scheme"]["rounds"] for tree, _ in tasks)
    if machine.compiled is None:  # what is compiled is compiled for all of them
        machine = replace(machine, compiled=machine.compiles(turns, 1))
    first: Setup | None = None  # its data and its kernels serve the others, too

    def setup_of(tree: dict[str, Any], folder: Path) -> tuple[Setup, bool]:
        nonlocal first
        unfinished = (folder / CHECKPOINT).exists()
        if unfinished:
            setup = take_up(folder, machine=machine, reuse=first)
        else:
            (folder / FACTS).unlink(missing_ok=True)  # stopped before its first checkpoint
            setup = set_up(parse(tree), None, machine, first)
        first = first or setup
        return setup, unfinished

    def course(i: int) -> Iterator[bool]:
        tree, folder = tasks[i][0], Path(tasks[i][1])
        if _stopping:
            return
        try:
            with held(folder):
                if (folder / SUMMARY).exists():  # finished since the command looked
                    finished[i] = None, ELSEWHERE
                    return
                setup, unfinished = setup_of(tree, folder)
                callbacks = [make() for make in map(named, log)]
                hooks = Hooks(stop=lambda: _stopping, callbacks=callbacks)
                instants = Simulation(setup).instants(folder, hooks, unfinished)
                finished[i] = (yield from instants), None
        except Interrupted:
            pass
        except InUse:
            finished[i] = None, ELSEWHERE
        except Exception as error:
            finished[i] = None, _sentence(error, folder)

    device = choose_device(machine.device)

    def sharing() -> Sharing:
        if first is None or first.compute.large:
            return Sharing.ALONE
        return Sharing.JOINED if first.compute.joins else Sharing.SIDE_BY_SIDE

    def waited() -> int:
        return first.compute.waited if first is not None else 0

    for _ in round_robin(map(course, range(len(tasks))), device, at_once, sharing, waited):
        pass
    return finished


def _sentence(error: Exception, folder: Path) -> str:
    """What a user did wrong is said as it is; of a fault of ours the traceback is kept as well."""
    if isinstance(error, UserError):
        return str(error)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FAULT).write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{type(error).__name__}: {error} (the traceback is in its {FAULT})"


def run_away(
    piece: tuple[dict[str, Any], dict[str, str]],
    machine: Machine,
    log: Sequence[str] = (),
    places: Whereabouts = HERE,
) -> tuple[Finished, dict[str, bytes]]:
    """Run one recipe where nobody shares our files: its run folder comes back as bytes.

    Beside the recipe stands the digest of others' code in it: this machine must have the same.
    """
    torch.set_num_threads(1)
    tree, code = piece
    try:
        find_again(places)
        mine = code_of(parse(tree))
    except UserError as error:
        return (None, str(error)), {}
    if changed := [entry for entry in code if mine.get(entry) != code[entry]]:
        return (None, f"{socket.gethostname()} has another source of {', '.join(changed)}"), {}
    with TemporaryDirectory() as place:
        folder = Path(place) / "run"
        [finished] = run_tasks([(tree, str(folder))], machine, log)
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        return finished, files


def unpack(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a run folder of what came back.  The summary, which makes it a finished run, is last."""
    for name in sorted(files, key=lambda name: name == SUMMARY):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial_file:
            partial_file.write_bytes(files[name])
    if SUMMARY in files:  # what a pool had begun here is not gone on with
        drop_leftovers(folder)
