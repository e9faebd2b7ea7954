"""Runs many cases for a command: progress on a terminal, a line for each elsewhere."""

import argparse
import signal
from collections.abc import Sequence
from pathlib import Path

from basil.cli.arguments import logs
from basil.cli.progress import comparison_bar
from basil.cli.say import complain, warn
from basil.experiment import Machine
from basil.many.cases import Case, CaseOutcome, ExecutionSettings, run_cases
from basil.record.callback import named
from basil.record.progress_bar import on_terminal
from basil.record.provenance import of_other_code
from basil.record.read import read_facts
from basil.record.run_folder import FACTS


def machine(args: argparse.Namespace) -> Machine:
    return Machine(args.device, args.deterministic, args.compile)


def settings(args: argparse.Namespace) -> ExecutionSettings:
    """Where the options say that cases are to be run."""
    for name in logs(args):
        named(name)()  # one that cannot be made is said once, before anything runs
    ray = getattr(args, "engine", "pool") == "ray"
    return ExecutionSettings(
        machine(args), args.jobs, logs(args), ray, getattr(args, "address", None)
    )


def carry_out(
    todo: Sequence[Case], where: ExecutionSettings, quiet: bool = False
) -> list[CaseOutcome]:
    """Run all; what became of each, in their order.

    Ctrl-C and SIGTERM stop the runs with a checkpoint, and say that the same command goes on.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _say_if_of_other_code(todo)
    outcomes: dict[Path, CaseOutcome] = {}
    try:
        with comparison_bar(todo) as bar:
            for outcome in run_cases(todo, where, bar):
                outcomes[outcome.case.folder] = outcome
                if outcome.new and not on_terminal() and not quiet:
                    what = "done" if outcome.summary is not None else "FAILED"
                    print(f"{what} {len(outcomes)}/{len(todo)}  {outcome.case.name}", flush=True)
    except KeyboardInterrupt:
        complain("stopped; the same command goes on from here")
        raise
    return [outcomes[case.folder] for case in todo]


def _say_if_of_other_code(todo: Sequence[Case]) -> None:
    """Runs that are there are kept: who has changed the code since should know."""
    there = [case.folder for case in todo if (case.folder / FACTS).exists()]
    old = [folder for folder in there if of_other_code(read_facts(folder))]
    if old:
        warn(
            f"{len(old)} of {len(todo)} runs were made or begun by other code than this and are"
            f" kept, {old[0]} for one: delete what is to be run anew"
        )
