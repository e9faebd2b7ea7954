"""The `basil` command."""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from basil import __version__
from basil.cli.arguments import add_jobs, add_shared, whole
from basil.cli.bound import add_bound
from basil.cli.calibrate import add_calibrate
from basil.cli.node import add_node, add_running
from basil.cli.peers import add_peers
from basil.cli.plan import add_plan
from basil.cli.reproduce import add_reproduce
from basil.cli.say import Parser, complain, warn
from basil.cli.sweep import add_sweep
from basil.cli.watch import add_watch, add_watching
from basil.errors import UserError

KINDS = (
    "schemes",
    "attacks",
    "rules",
    "graphs",
    "weights",
    "mixings",
    "partitions",
    "sensitive",
    "faults",
    "datasets",
    "models",
    "losses",
    "optimizers",
    "metrics",
    "schedules",
    "recipes",
)


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = Parser(
        prog="basil",
        description="Decentralised training on a ring that keeps learning when some nodes lie.",
        epilog="Start with: basil compare demo",
    )
    top.add_argument("--version", action="version", version=f"basil {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run one recipe, or go on with an interrupted run")
    run.add_argument("recipe", nargs="?", metavar="RECIPE", help="a TOML file, or a shipped name")
    run.add_argument("--resume", metavar="DIR", help="go on with the interrupted run in DIR")
    run.add_argument(
        "--threads", type=whole, default=1, help="CPU threads (default 1; 0: all cores)"
    )
    add_watching(run)
    add_shared(run)
    run.set_defaults(command="run")

    compare = commands.add_parser("compare", help="run schemes × attacks × seeds side by side")
    compare.add_argument("recipe", metavar="RECIPE", help="a TOML file, or a shipped name")
    compare.add_argument("--schemes", nargs="+", metavar="SCHEME", help="see basil list schemes")
    compare.add_argument("--attacks", nargs="+", metavar="ATTACK", help="see basil list attacks")
    compare.add_argument("--seeds", nargs="+", type=whole, metavar="SEED")
    compare.add_argument("--no-report", action="store_true", help="leave page and figures out")
    add_shared(compare)
    add_jobs(compare)
    compare.set_defaults(command="compare")

    report = commands.add_parser("report", help="one page and figures from run folders")
    report.add_argument("folders", nargs="+", metavar="DIR")
    report.add_argument("--out", metavar="DIR", help="where to write (default: the first DIR)")
    report.add_argument(
        "--against",
        choices=("rounds", "megabytes", "seconds"),
        default="rounds",
        help="what the curves are drawn against (seconds: of the virtual clock)",
    )
    report.add_argument("--json", action="store_true", help="print the summaries as JSON")
    report.set_defaults(command="report")

    show = commands.add_parser("list", help="what a recipe can name")
    show.add_argument("what", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    show.add_argument("name", nargs="?", metavar="NAME", help="all about one, with its options")
    show.add_argument("--json", action="store_true")
    show.set_defaults(command="show", home="basil.cli.listing")

    add_watch(commands)
    add_reproduce(commands)
    add_sweep(commands)
    add_plan(commands)
    add_bound(commands)
    add_calibrate(commands)
    add_node(commands)
    add_running(add_peers(commands))

    files = commands.add_parser("data", help="data sets on this machine")
    verbs = files.add_subparsers(required=True, metavar="get|where")
    get = verbs.add_parser("get", help="fetch a data set and check it")
    get.add_argument("name", metavar="NAME")
    get.set_defaults(command="data_get")
    where = verbs.add_parser("where", help="where data sets are looked for")
    where.add_argument("name", nargs="?", metavar="NAME")
    where.set_defaults(command="data_where")
    return top


def _say(message: Warning | str, *_: Any, **__: Any) -> None:
    warn(str(message))


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 some of many runs failed, 2 wrong input, 130 interrupted, 141 nobody
    reads on (`… | head`).
    """
    args = parser().parse_args(argv)
    warnings.showwarning = _say
    try:
        # Imported late: PyTorch takes seconds, and --help should not.
        commands = import_module(getattr(args, "home", "basil.cli.commands"))
        code: int = getattr(commands, args.command)(args)
        sys.stdout.flush()
        return code
    except UserError as error:
        complain(f"basil: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Python flushes once more on its way out, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
