"""basil reproduce: the paper's figures, run again."""

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from basil.cli.arguments import add_jobs, add_shared, whole
from basil.cli.say import complain, say
from basil.errors import UserError
from basil.text import aligned, width


def add_reproduce(commands: Any) -> None:
    """The options of `basil reproduce`."""
    reproduce = commands.add_parser(
        "reproduce",
        help="run a figure of the paper again, and say whether it agrees",
        description="Runs what a figure or table of the paper shows, draws it in the paper's layout"
        " and holds it against what the paper says. The same command, given again, goes on where"
        " it was stopped.",
    )
    reproduce.add_argument("figures", nargs="*", metavar="FIGURE", help="fig4, table3, … or a file")
    reproduce.add_argument("--all", action="store_true", help="every figure and table")
    reproduce.add_argument("--list", action="store_true", help="which there are")
    reproduce.add_argument(
        "--quick",
        action="store_true",
        help="fewer nodes and rounds, on data that comes with Basil: minutes on 2 cores",
    )
    reproduce.add_argument("--seeds", type=whole, default=1, help="how many (default 1)")
    reproduce.add_argument(
        "--draw-only",
        action="store_true",
        help="run nothing: figures and verdicts from the runs that are there",
    )
    reproduce.add_argument(
        "--publish", metavar="DIR", help="write tables, figures and verdicts to DIR as well"
    )
    add_shared(reproduce)
    add_jobs(reproduce)
    reproduce.set_defaults(command="reproduce", home="basil.cli.reproduce")


def reproduce(args: argparse.Namespace) -> int:
    """basil reproduce FIGURE … | --all | --list"""
    from basil.cli.carry_out import carry_out, settings
    from basil.many.figures import lacking_data, plan_figure, reproduction
    from basil.recipe.figure import figures, load_figure
    from basil.record.disk import writing
    from basil.reporting.reproduction import can_draw, write_reproduction
    from basil.reporting.reproductions import write_set

    if args.list:
        return _list(args.json)
    names = list(figures()) if args.all else args.figures
    if not names:
        raise UserError("which figure? e.g. basil reproduce fig4 --quick; --list shows them all")
    if args.seeds < 1:
        raise UserError(f"--seeds {args.seeds}: it must be 1 or more")
    out = Path(args.out or ("runs/paper-quick" if args.quick else "runs/paper"))
    where = settings(args)
    plans = [
        plan_figure(load_figure(name), args.seeds, out, args.quick, args.set) for name in names
    ]
    lacking = {} if args.draw_only else {p.figure.name: lacking_data(p) for p in plans}
    if any(lacking.values()) and not args.all:
        raise UserError("; ".join(filter(None, lacking.values())))
    failed, everything = [s for s in lacking.values() if s], []
    plans = [plan for plan in plans if not lacking.get(plan.figure.name)]
    if not args.draw_only:  # all together: no core waits for the last run of a figure
        todo = {case.folder: case for plan in plans for case in plan.cases}
        failed += [
            f"{outcome.case.name}: {outcome.error}"
            for outcome in carry_out(list(todo.values()), where, quiet=args.json)
            if outcome.summary is None
        ]
    targets = [(out, True)] + ([(Path(args.publish), False)] if args.publish else [])
    for plan in plans:
        found = reproduction(plan, _command(args, plan.figure.name))
        everything.append(found)
        for target, large in targets:
            with writing(target):
                write_reproduction(found, target, vector=large)
        if not args.json:
            _say(found, out / found.figure.name)
    pages = []
    for target, large in targets if everything else ():
        with writing(target):
            pages += write_set(target, html=large)
    if args.json:
        print(json.dumps({f.figure.name: [v.as_dict() for v in f.verdicts] for f in everything}))
    else:
        print("\n".join(f"page    {page}" for page in pages))
    if not can_draw():
        complain(
            "no figure was drawn: matplotlib is not installed here; copy"
            f" {out} to a machine that has it and add --draw-only"
        )
    for sentence in failed:
        complain(f"basil: {sentence}")
    return 2 if any(lacking.values()) else int(bool(failed))


def _say(found: Any, folder: Path) -> None:
    print()
    say(f"{found.figure.name}: {found.title} ({found.size})", hang=2)
    for verdict in found.verdicts:
        say(f"  {verdict}", hang=6)
        if verdict.note and verdict.outcome != "agrees":
            say(f"      {verdict.note}", hang=6)
    say(f"  {folder}")


def _list(as_json: bool) -> int:
    from basil.recipe.figure import beyond_the_paper, figures, load_figure

    titles = {name: load_figure(name).title for name in figures()}
    for name in beyond_the_paper():
        titles[name] = f"{load_figure(name).title} (not the paper's)"
    if as_json:
        print(json.dumps(titles))
    else:
        print("\n".join(aligned(list(titles.items()), width())))
    return 0


def _command(args: argparse.Namespace, name: str) -> str:
    """What to type to get this figure again."""
    words = ["basil", "reproduce", name]
    words += ["--quick"] if args.quick else []
    words += ["--seeds", str(args.seeds)] if args.seeds > 1 else []
    words += [word for change in args.set for word in ("-s", change)]
    return shlex.join(words)
