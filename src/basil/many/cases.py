"""Many runs side by side: schemes × attacks × seeds, or whatever cases there are.

A case is a recipe with a folder of its own.  Finished ones are kept and interrupted ones go on, so
that the same command, given again, does what is left.
"""

import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from warnings import warn

from basil.errors import UserError
from basil.experiment import Machine, choose_device, others_code
from basil.foreign import whereabouts
from basil.many.gpu import gpu_processes
from basil.many.processes import Ended, in_processes
from basil.many.ray import on_ray
from basil.many.round_robin import AT_ONCE
from basil.many.worker import ELSEWHERE, Finished, ready, run_away, run_tasks, unpack
from basil.protocol.schemes import GRAPH, SCHEMES, runs_on
from basil.recipe import (
    MEASURED,
    NO_ATTACK,
    Recipe,
    code_of,
    fingerprint,
    label,
    parse,
    to_tree,
    vary,
)
from basil.record.follow import PLANNED, planned
from basil.record.read import read_run
from basil.record.run_folder import FACTS, METRICS, SUMMARY, InUse, held, write_json

T = TypeVar("T")
LOOK = 0.5  # seconds between two looks at runs that are at work elsewhere


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
class CaseOutcome:
    """A finished case: its summary, or the sentence that says why there is none."""

    case: Case
    summary: dict[str, Any] | None
    error: str | None
    new: bool  # False: it was there already


@dataclass(frozen=True)
class ExecutionSettings:
    """Where cases are run: in `jobs` processes (0: one a core, on a GPU what suits it), or
    on Ray.

    log: callbacks for every run, "module:name" each; see `basil.record.callback`.
    """

    machine: Machine = field(default_factory=Machine)
    jobs: int = 0
    log: tuple[str, ...] = ()
    ray: bool = False
    address: str | None = None  # of a Ray cluster; None: one on this machine


def cases(
    recipe: Recipe, schemes: Sequence[str], attacks: Sequence[str], seeds: Sequence[int], out: Path
) -> list[Case]:
    """All combinations, each with a folder of its own."""
    found = []
    for scheme, attack, seed in itertools.product(schemes, attacks, seeds):
        varied = vary(recipe, scheme, attack, seed)
        found.append(Case(varied, out / label(varied)))
    return found


def comparison(
    recipe: Recipe,
    out: Path,
    schemes: Sequence[str] = (),
    attacks: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> list[Case]:
    """What is given here is put side by side, else what the recipe's [compare] says; each once."""
    plan = recipe.compare
    return cases(
        recipe,
        _each_once(schemes or plan.schemes or SCHEMES),
        _each_once(attacks or plan.attacks or (NO_ATTACK, recipe.attack.name)),
        _each_once(seeds or plan.seeds or (recipe.seed,)),
        out,
    )


def _each_once(things: Iterable[T]) -> list[T]:
    """A case that is named twice is run once: it has one folder."""
    return list(dict.fromkeys(things))


def case_of(recipe: Recipe, out: Path) -> Case:
    """A case in a folder named after all that its recipe says: the same recipe, the same run."""
    return Case(recipe, out / f"{label(recipe)}-{fingerprint(recipe)}")


def run_cases(
    todo: Sequence[Case],
    settings: ExecutionSettings,
    watch: Callable[[Sequence[Case]], None] = lambda running: None,
) -> Iterator[CaseOutcome]:
    """Run all cases; finished ones are kept, interrupted ones go on.  Yields in order of finishing.

    A run that another process has at work is left to it, and at the end waited for; if it is not
    finished there, it is gone on with here.

    On a CPU each process takes one case after the other and computes with one thread, so that
    results are the same bit for bit however many run side by side.  On a GPU each process takes its
    share of the cases, several at once: by turns they keep the device busy.
    """
    for case in todo:
        _same_recipe(case)
    _announce(todo)
    left, said = list(todo), False
    while left:
        waiting, elsewhere = list[Case](), list[Case]()
        for case in left:
            if (case.folder / SUMMARY).exists():
                yield CaseOutcome(case, read_run(case.folder).summary, None, new=False)
            else:
                (elsewhere if _at_work(case) else waiting).append(case)
        if waiting:
            for outcome in (_on_ray if settings.ray else _here)(waiting, settings, watch):
                if outcome.error == ELSEWHERE:  # somebody was quicker
                    elsewhere.append(outcome.case)
                else:
                    yield outcome
        elif elsewhere:
            if not said:
                runs = ", ".join(case.name for case in elsewhere)
                warn(f"waiting for what another process has at work: {runs}", stacklevel=2)
                said = True
            watch(elsewhere)
            time.sleep(LOOK)
        left = elsewhere


def _announce(todo: Sequence[Case]) -> None:
    """Which runs there are to be, beside them: for those who look on before they have begun."""
    beside: dict[Path, list[dict[str, Any]]] = {}
    for case in todo:
        r = case.recipe
        said = {"scheme": r.scheme.name, "attack": r.attack.name, "rounds": r.scheme.rounds}
        entry = {"folder": case.name, **said, "seed": r.seed}
        beside.setdefault(case.folder.parent, []).append(entry)
    for folder, entries in beside.items():
        if planned(folder) == entries:
            continue
        with suppress(OSError):  # no run depends on it
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / PLANNED, {"cases": entries})


def _at_work(case: Case) -> bool:
    """In another process?"""
    if not case.folder.exists():
        return False
    try:
        with held(case.folder):
            return False
    except UserError as error:
        return isinstance(error, InUse)


def check(outcomes: Iterable[CaseOutcome]) -> None:
    """Say which failed, and why; what several have in common once."""
    failed = [f"{o.case.name}: {o.error}" for o in outcomes if o.summary is None]
    if failed:
        raise UserError("; ".join(dict.fromkeys(failed)))


def _here(
    waiting: list[Case], settings: ExecutionSettings, watch: Callable[[Sequence[Case]], None]
) -> Iterator[CaseOutcome]:
    machine = settings.machine
    device = choose_device(machine.device)  # a wrong one is said here, not once for each process
    on_gpu = device.type == "cuda"
    jobs = settings.jobs or (gpu_processes() if on_gpu else os.cpu_count() or 1)
    groups = _shares(waiting, min(jobs, len(waiting))) if on_gpu else [[c] for c in waiting]
    tasks = [[(to_tree(case.recipe), str(case.folder)) for case in group] for group in groups]
    at_once = max(1, AT_ONCE // jobs)
    places = whereabouts()
    work = partial(run_tasks, machine=machine, log=settings.log, at_once=at_once, places=places)

    def see(running: Sequence[int]) -> None:
        watch([case for i in running for case in groups[i]])

    ended: Ended[list[Finished]]
    compilers = max(1, (os.cpu_count() or 1) // jobs)
    for ended in in_processes(work, tasks, jobs, partial(ready, compilers), see):
        group = groups[ended.number]
        found = ended.result or [(None, ended.error)] * len(group)
        for case, finished in zip(group, found, strict=True):
            yield CaseOutcome(case, *finished, new=True)


def _on_ray(
    waiting: list[Case], settings: ExecutionSettings, watch: Callable[[Sequence[Case]], None]
) -> Iterator[CaseOutcome]:
    work = partial(run_away, machine=settings.machine, log=settings.log, places=whereabouts())
    pieces = [(to_tree(case.recipe), code_of(case.recipe)) for case in waiting]
    gpus = 1 / gpu_processes() if settings.machine.device.startswith("cuda") else 0.0
    workers = settings.jobs or os.cpu_count() or 1
    ended: Ended[tuple[Finished, dict[str, bytes]]]
    for ended in on_ray(
        work,
        pieces,
        workers,
        settings.address,
        gpus,
        lambda running: watch([waiting[i] for i in running][:workers]),
    ):
        case = waiting[ended.number]
        if ended.result is None:
            yield CaseOutcome(case, None, ended.error, new=True)
            continue
        finished, files = ended.result
        unpack(case.folder, files)
        yield CaseOutcome(case, *finished, new=True)


def _shares(cases: list[Case], processes: int) -> list[list[Case]]:
    """One for each process, each with as many of each kind, what takes longest first.

    Seeds of one case stay together: of rings that ask for the same, work is one computation.
    """
    order = sorted(cases, key=lambda case: (_kind(case), str(case.recipe.attack)))
    shares: list[list[Case]] = [[] for _ in range(processes)]
    one_more = itertools.cycle(range(processes))
    for _, kind in itertools.groupby(order, _kind):
        alike = list(kind)
        parts = [len(alike) // processes] * processes
        for _ in range(len(alike) % processes):
            parts[next(one_more)] += 1
        left = iter(alike)
        for share, part in zip(shares, parts, strict=True):
            share += itertools.islice(left, part)
    return shares


def _kind(case: Case) -> tuple[bool, int, str, str]:
    """What takes longest comes first; a round on a graph takes several of a ring's."""
    recipe = case.recipe
    on_ring = runs_on(recipe.scheme.name) != GRAPH
    turns = recipe.ring.nodes * recipe.scheme.rounds
    return on_ring, -turns, recipe.scheme.name, recipe.scheme.rule


def _same_recipe(case: Case) -> None:
    """What lies in the case's folder must be a run of the case's recipe."""
    if not (case.folder / FACTS).exists():
        return
    run = read_run(case.folder)
    there, here = run.recipe, to_tree(case.recipe)
    for key, value in here["time"].items():
        if value == MEASURED:  # filled in when a run starts
            there["time"][key] = MEASURED
    if parse(there) != parse(here):
        raise UserError(f"{case.folder} holds a run with another recipe: choose another --out")
    if changed := others_code(case.recipe, run):
        raise UserError(
            f"{case.folder} holds a run with another source of {changed}: choose another --out"
        )
