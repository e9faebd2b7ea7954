"""Schemes × attacks × seeds: many runs side by side, in as many processes as there are cores."""

import itertools
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from basil.engine.together import together
from basil.errors import UserError
from basil.experiment import Experiment, Interrupted, Machine, choose_device, take_up
from basil.recipe import MEASURED, Recipe, parse, to_tree, vary
from basil.record.read import read_run
from basil.record.run_folder import CHECKPOINT, FACTS, METRICS, SUMMARY

GPU_PROCESSES = 2  # the host is busy with one, the device is not; more get in each other's way
AT_ONCE = 16  # cases in one process on a GPU
Finished = tuple[dict[str, Any] | None, str | None]
"""A summary, or the sentence that says why there is none."""


@dataclass(frozen=True)
class Case:
    """One run of a comparison."""

    recipe: Recipe
    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    def rounds_done(self) -> int:
        """Read off the run folder, so that it works across processes."""
        try:
            last = (self.folder / METRICS).read_text().splitlines()[-1]
            return int(json.loads(last)["round"])
        except (OSError, IndexError, ValueError, KeyError):
            return 0


@dataclass(frozen=True)
class Outcome:
    """A finished case: its summary, or the sentence that says why there is none."""

    case: Case
    summary: dict[str, Any] | None
    error: str | None
    new: bool  # False: it was there already


def cases(
    recipe: Recipe, schemes: Sequence[str], attacks: Sequence[str], seeds: Sequence[int], out: Path
) -> list[Case]:
    """All combinations, each with a folder of its own."""
    found = []
    for scheme, attack, seed in itertools.product(schemes, attacks, seeds):
        folder = out / f"{scheme}-{attack}-seed{seed}"
        found.append(Case(vary(recipe, scheme, attack, seed), folder))
    return found


def run_cases(
    todo: Sequence[Case],
    jobs: int,
    machine: Machine,
    watch: Callable[[Sequence[Case]], None] = lambda running: None,
) -> Iterator[Outcome]:
    """Run all cases; finished ones are kept, interrupted ones go on.  Yields in order of finishing.

    On a CPU each process (`jobs`; 0: one a core) takes one case after the other and computes with
    one thread, so that results are the same bit for bit however many run side by side.  On a GPU
    each process takes its share of the cases at once: by turns they keep the device busy.
    """
    device = choose_device(machine.device)  # a wrong one is said here, not once for each process
    on_gpu = device.type == "cuda"
    jobs = jobs or (GPU_PROCESSES if on_gpu else os.cpu_count() or 1)
    for case in todo:
        _same_recipe(case)
    waiting = []
    for case in todo:
        if (case.folder / SUMMARY).exists():
            yield Outcome(case, read_run(case.folder).summary, None, new=False)
        else:
            waiting.append(case)
    if not waiting:
        return
    context = multiprocessing.get_context("spawn")
    processes = min(jobs, len(waiting))
    groups = _shares(waiting, processes) if on_gpu else [[case] for case in waiting]
    with ProcessPoolExecutor(processes, context, _ready) as pool:
        futures: dict[Future[list[Finished]], list[Case]] = {
            pool.submit(
                _run, [(to_tree(case.recipe), str(case.folder)) for case in group], machine
            ): group
            for group in groups
        }
        try:
            while futures:
                done, _ = wait(futures, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in done:
                    for case, finished in zip(futures.pop(future), future.result(), strict=True):
                        yield Outcome(case, *finished, new=True)
                watch([case for f, group in futures.items() if f.running() for case in group])
        except KeyboardInterrupt:
            # A terminal has told the workers too; whoever stopped this process alone has not.
            for worker in multiprocessing.active_children():
                if worker.pid is not None:
                    os.kill(worker.pid, signal.SIGINT)
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _shares(cases: list[Case], processes: int) -> list[list[Case]]:
    """Of at most `AT_ONCE` cases each, and as many for each process."""
    shares = processes * -(-len(cases) // (processes * AT_ONCE))
    return [cases[i::shares] for i in range(min(shares, len(cases)))]


def _same_recipe(case: Case) -> None:
    """What lies in the case's folder must be a run of the case's recipe."""
    if not (case.folder / FACTS).exists():
        return
    there, here = read_run(case.folder).recipe, to_tree(case.recipe)
    for key, value in here["time"].items():
        if value == MEASURED:  # filled in when a run starts
            there["time"][key] = MEASURED
    if parse(there) != parse(here):
        raise UserError(f"{case.folder} holds a run with another recipe: choose another --out")


_stopping = False


def _ready() -> None:
    """In each worker: one thread, and on Ctrl-C stop at the next turn with a checkpoint."""
    torch.set_num_threads(1)

    def stop(*_: object) -> None:
        global _stopping
        _stopping = True

    signal.signal(signal.SIGINT, stop)


def _run(cases: list[tuple[dict[str, Any], str]], machine: Machine) -> list[Finished]:
    """Run some cases by turns; what became of each of them."""
    finished: list[Finished] = [(None, "interrupted")] * len(cases)
    experiments: list[tuple[Experiment | None, Path, bool]] = []
    turns = sum(tree["ring"]["nodes"] * tree["scheme"]["rounds"] for tree, _ in cases)
    if machine.compiled is None:  # what is compiled is compiled for all of them
        machine = replace(machine, compiled=machine.compiles(turns, 1))
    beside: Experiment | None = None
    for i, (tree, folder) in enumerate(cases):
        path = Path(folder)
        unfinished = (path / CHECKPOINT).exists()
        try:
            if unfinished:
                experiment = take_up(path, machine=machine, beside=beside)
            else:
                (path / FACTS).unlink(missing_ok=True)  # stopped before its first checkpoint
                experiment = Experiment(parse(tree), None, machine, beside)
            beside = beside or experiment
            experiments.append((experiment, path, unfinished))
        except UserError as error:
            finished[i] = None, str(error)
            experiments.append((None, path, False))

    def course(i: int) -> Iterator[bool]:
        experiment, path, unfinished = experiments[i]
        if experiment is not None:
            try:
                go_on = partial(experiment.course, stop=lambda: _stopping, resume=unfinished)
                finished[i] = (yield from go_on(path)), None
            except UserError as error:
                finished[i] = None, str(error)
            except Interrupted:
                pass

    device = choose_device(machine.device)
    for _ in together([course(i) for i in range(len(cases))], device):
        pass
    return finished
