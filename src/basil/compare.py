"""Schemes × attacks × seeds: many runs side by side, in as many processes as there are cores."""

import itertools
import json
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from basil.errors import UserError
from basil.experiment import Experiment, Interrupted, choose_device, resume
from basil.recipe import MEASURED, Recipe, parse, to_tree, vary
from basil.record.read import read_run
from basil.record.run_folder import CHECKPOINT, FACTS, METRICS, SUMMARY


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
    device: str,
    watch: Callable[[Sequence[Case]], None] = lambda running: None,
) -> Iterator[Outcome]:
    """Run all cases; finished ones are kept, interrupted ones go on.  Yields in order of finishing.

    Each process computes with one thread, so that results are the same bit for bit however many
    run side by side.
    """
    choose_device(device)  # a wrong one is said here, not once for each process
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
    with ProcessPoolExecutor(min(jobs, len(waiting)), context, _ready) as pool:
        futures: dict[Future[tuple[dict[str, Any] | None, str | None]], Case] = {
            pool.submit(_run, to_tree(case.recipe), str(case.folder), device): case
            for case in waiting
        }
        try:
            while futures:
                done, _ = wait(futures, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in done:
                    case = futures.pop(future)
                    yield Outcome(case, *future.result(), new=True)
                watch([case for future, case in futures.items() if future.running()])
        except KeyboardInterrupt:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


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


def _run(
    tree: dict[str, Any], folder: str, device: str
) -> tuple[dict[str, Any] | None, str | None]:
    try:
        path = Path(folder)
        if (path / CHECKPOINT).exists():
            return resume(path, device=device, stop=lambda: _stopping), None
        (path / FACTS).unlink(missing_ok=True)  # stopped before its first checkpoint: begin again
        experiment = Experiment(parse(tree), device=device)
        return experiment.run(path, stop=lambda: _stopping), None
    except UserError as error:
        return None, str(error)
    except Interrupted:
        return None, "interrupted"
