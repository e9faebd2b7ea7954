"""basil sweep: many recipes, one table."""

import argparse
import json
from pathlib import Path
from typing import Any

from basil.cli.arguments import add_jobs, add_shared
from basil.cli.say import complain, say
from basil.errors import UserError


def add_sweep(commands: Any) -> None:
    """The options of `basil sweep`."""
    sweep = commands.add_parser(
        "sweep",
        help="run a grid, or random draws, over any keys of a recipe × seeds",
        description="Runs every combination that SWEEP.toml asks for, and writes one table. A run"
        " is known by its recipe: given again, the command does what is left, and what was finished"
        " is never repeated.",
    )
    sweep.add_argument("sweep", metavar="SWEEP.toml")
    sweep.add_argument(
        "--engine", choices=("pool", "ray"), default="pool", help="processes (default), or Ray"
    )
    sweep.add_argument("--address", help="of a Ray cluster (default: a local one)")
    add_shared(sweep)
    add_jobs(sweep)
    sweep.set_defaults(command="sweep", home="basil.cli.sweep")


def sweep(args: argparse.Namespace) -> int:
    """basil sweep SWEEP.toml [--engine pool|ray]"""
    from basil.cli.carry_out import carry_out, settings
    from basil.many.sweep import sweep_cases, tidy, write_table
    from basil.recipe.sweep_plan import load_sweep
    from basil.record.read import read_run
    from basil.reporting.results_table import as_text, results_table

    if args.address is not None and args.engine != "ray":
        raise UserError(f"--address {args.address}: it goes with --engine ray")
    if args.address == "":  # an unset variable of a script; not to be taken for a local cluster
        raise UserError("--address is empty: say where the Ray cluster is, or leave it out")
    out = Path(args.out) if args.out else Path("runs") / Path(args.sweep).stem
    points = load_sweep(args.sweep, args.set)
    todo = sweep_cases(points, out)
    outcomes = carry_out(todo, settings(args), quiet=args.json)
    rows = tidy(points, outcomes, out)
    tables = write_table(rows, out)
    new, failed = sum(outcome.new for outcome in outcomes), [row for row in rows if row["error"]]
    for row in failed:
        complain(f"failed: {row['run'] or 'no run'}: {row['error']}")
    if args.json:
        print(json.dumps(rows))
        return int(bool(failed))
    finished = [read_run(o.case.folder) for o in outcomes if o.summary is not None]
    if finished:
        print(f"{as_text(results_table(finished))}\n")
    done = len(finished)
    if new:
        say(f"{done} of {len(rows)} runs are finished, {new} of them new")
    else:
        these = f"{done} runs" if done == len(rows) else f"{done} runs that can be"
        say(f"nothing to do: all {these} were finished already")
    print("\n".join(f"table  {table}" for table in tables))
    return int(bool(failed))
