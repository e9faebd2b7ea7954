"""What each command does.  Their options are parsed in `basil.cli`."""

import argparse
import json
import os
import re
import signal
from pathlib import Path

import torch

from basil import data
from basil.cli.arguments import logs
from basil.cli.carry_out import carry_out, machine, settings
from basil.cli.say import complain, warn
from basil.cli.watch import watching
from basil.data import DATASETS
from basil.data.sources import SOURCES
from basil.errors import UserError
from basil.experiment import (
    Hooks,
    Interrupted,
    Simulation,
    recipe_of,
    resume,
    set_up,
    stopped_by,
)
from basil.learning.subnormal import no_subnormals
from basil.many.cases import check, comparison
from basil.recipe import Recipe, label, load, warnings
from basil.record.callback import named
from basil.record.progress_bar import on_terminal, run_bar
from basil.record.provenance import of_other_code
from basil.record.read import Run, read_run
from basil.reporting.results_table import as_text, results_table
from basil.text import aligned, width

STOPPED = 130  # what a shell expects of a program that Ctrl-C ended


def run(args: argparse.Namespace) -> int:
    """basil run RECIPE | --resume DIR"""
    torch.set_num_threads(args.threads or os.cpu_count() or 1)
    if args.resume:
        if args.recipe or args.set or args.out:
            raise UserError("--resume DIR goes on as it began: give no recipe, -s or --out with it")
        folder = Path(args.resume)
        begun = read_run(folder)
        recipe = recipe_of(begun)
        if of_other_code(begun.facts):
            warn(f"{folder} was begun by other code than this")
    else:
        if not args.recipe:
            raise UserError("which recipe? e.g. basil run demo; basil list recipes shows them")
        recipe = load(args.recipe, args.set)
        folder = Path(args.out) if args.out else _free_folder(recipe)
        for sentence in warnings(recipe):
            warn(sentence)
    callbacks = [make() for make in map(named, logs(args))]
    with no_subnormals(), watching(folder, "run", args.watch) as stay:
        try:
            with stopped_by(signal.SIGINT, signal.SIGTERM) as stop, run_bar() as bar:
                hooks = Hooks(bar, stop, callbacks)
                if args.resume:
                    summary = resume(folder, None, machine(args), hooks)
                else:
                    setup = set_up(recipe, machine=machine(args))
                    if setup.symmetry_warning:
                        warn(setup.symmetry_warning)
                    summary = Simulation(setup).run(folder, hooks)
        except Interrupted:
            complain(f"stopped; go on with: basil run --resume {folder}")
            return STOPPED
        if args.json:
            print(json.dumps({**summary, "folder": str(folder)}))
        else:
            print(as_text(results_table([read_run(folder)])))
            print(f"\nrun folder  {folder}\nreport      basil report {folder}")
        stay()
    return 0


def compare(args: argparse.Namespace) -> int:
    """basil compare RECIPE --schemes … --attacks … --seeds …"""
    recipe = load(args.recipe, args.set)
    out = Path(args.out) if args.out else Path("runs") / Path(args.recipe).stem
    todo = comparison(recipe, out, args.schemes or (), args.attacks or (), args.seeds or ())
    for sentence in dict.fromkeys(s for case in todo for s in warnings(case.recipe)):
        warn(sentence)
    check(carry_out(todo, settings(args), quiet=args.json))
    runs = [read_run(case.folder) for case in todo]
    return _show(runs, "" if args.no_report else _report(runs, out), args.json)


def report(args: argparse.Namespace) -> int:
    """basil report DIR …"""
    from basil.reporting.page import runs_below  # matplotlib takes a second to import

    runs = runs_below(args.folders)
    out = Path(args.out) if args.out else Path(args.folders[0])
    return _show(runs, _report(runs, out, args.against), args.json)


def _show(runs: list[Run], written: str, as_json: bool) -> int:
    if as_json:
        print(json.dumps([{**(run.summary or {}), "folder": str(run.folder)} for run in runs]))
    else:
        print(as_text(results_table(runs)) + (f"\n\n{written}" if written else ""))
    return 0


def data_get(args: argparse.Namespace) -> int:
    """basil data get NAME"""
    files = data.get(args.name, progress=on_terminal())
    if not files:
        print(f"{args.name} comes with Basil: there is nothing to fetch")
    for file in files:
        print(file)
    return 0


def data_where(args: argparse.Namespace) -> int:
    """basil data where [NAME]"""
    rows = []
    for name in [args.name] if args.name else list(DATASETS):
        if name in data.BROUGHT:
            said = "is brought along, from wherever it is"
        elif SOURCES.get(name, ...) is None:
            said = "comes with Basil"
        elif name in DATASETS and name not in SOURCES:
            said = "comes with another package"
        else:
            state = "present" if data.present(name) else f"absent: basil data get {name}"
            said = f"{data.where(name)}  ({state})"
        rows.append((f"{name:<14}", said))
    print("\n".join(aligned(rows, width())))
    return 0


def _report(runs: list[Run], out: Path, against: str = "rounds") -> str:
    from basil.reporting import write_report  # matplotlib takes a second to import

    paths = write_report(runs, out, against)
    # Those that show all runs; rings are for the page.
    names = re.compile(r"accuracy|loss|heatmap|metric-.*")
    pictures = [path for path in paths.figures if names.fullmatch(path.stem)]
    shown = [f"figure  {path}" for path in pictures if path.suffix == ".png"]
    return "\n".join([f"page    {paths.page}", *shown])


def _free_folder(recipe: Recipe) -> Path:
    """runs/digits-basil-gaussian-seed0, or the first of -2, -3, … that is free."""
    stem = label(recipe, recipe.data.dataset)
    folder, number = Path("runs") / stem, 2
    while folder.exists():
        folder, number = Path("runs") / f"{stem}-{number}", number + 1
    return folder
