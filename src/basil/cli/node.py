"""`basil node`, `basil peers up` and `basil peers status`: options, and what they do."""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from basil.cli.say import complain, warn
from basil.cli.watch import add_watching, watching

STOPPED = 130  # what a shell expects of a program that Ctrl-C ended
ALONE = 1
SECONDS = {  # the options that are so many, with their defaults
    "patience": (0.5, "the least that a turn of another node is given"),
    "window": (60.0, "how long to wait for all nodes before the first turn"),
    "linger": (30.0, "how long to stay at the end for nodes that have not finished"),
    "alone": (300.0, "how long to wait for a quorum, before it ends with code 1"),
}


def add_node(commands: Any) -> None:
    """basil node --dir DIR"""
    node = commands.add_parser("node", help="run one peer of a ring on this machine")
    node.add_argument("--dir", required=True, metavar="DIR", help="the node's own folder")
    node.add_argument(
        "--attack", default="none", metavar="NAME", help="lie, for a drill: see basil list attacks"
    )
    node.add_argument("--data", metavar="DIR", help="samples of its own (docs/operate/deploy.md)")
    node.add_argument("--listen", metavar="HOST:PORT", help="default: its address in the roster")
    node.add_argument("--metrics", metavar="HOST:PORT", help="Prometheus, e.g. 127.0.0.1:9100")
    node.add_argument("--log-json", action="store_true", help="a JSON object for each event")
    running(node)
    node.set_defaults(command="node", home="basil.cli.node")


def add_running(verbs: Any) -> None:
    """basil peers up|status --dir DIR"""
    up = verbs.add_parser("up", help="start all nodes of a ring on this machine, for a try-out")
    up.add_argument("--dir", required=True, metavar="DIR", help="the ring's folder")
    earlier = up.add_mutually_exclusive_group()
    earlier.add_argument("--resume", action="store_true", help="go on with the run that is there")
    earlier.add_argument("--fresh", action="store_true", help="delete it, and begin anew")
    add_watching(up)
    running(up)
    up.set_defaults(command="up", home="basil.cli.node")

    status = verbs.add_parser("status", help="where the nodes in a folder stand")
    status.add_argument("--dir", required=True, metavar="DIR", help="of a ring, or of one node")
    status.add_argument("--json", action="store_true")
    status.set_defaults(command="status", home="basil.cli.node")


def running(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--twin",
        action="store_true",
        help="with the simulator's shuffles and in its order, for comparisons with it",
    )
    command.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")
    command.add_argument(
        "--threads", type=int, default=1, help="CPU threads (default 1; 0: all cores)"
    )
    for name, (default, what) in SECONDS.items():
        command.add_argument(
            f"--{name}",
            type=float,
            default=default,
            metavar="SECONDS",
            help=f"{what} (default {default:g})",
        )
    command.add_argument(
        "--quorum",
        type=int,
        metavar="N",
        help="nodes that it takes to train, itself counted (default: more than half, and more"
        " predecessors than may be Byzantine where more are absent than that)",
    )


def needs_peers() -> None:
    """What only peers need may not be installed."""
    from importlib.util import find_spec

    from basil.errors import UserError

    for module in ("grpc", "cryptography", "prometheus_client"):
        if find_spec(module) is None:
            raise UserError(f"{module} is missing: pip install 'basil-fl[peers]'")


def node(args: argparse.Namespace) -> int:
    """basil node"""
    needs_peers()
    import torch

    from basil.errors import UserError
    from basil.learning.subnormal import no_subnormals
    from basil.peer.link.say import say
    from basil.peer.run.agreement import Alone
    from basil.peer.run.logs import set_up
    from basil.peer.run.peer import Peer
    from basil.peer.run.start import Options
    from basil.record.run_folder import held

    torch.set_num_threads(args.threads or os.cpu_count() or 1)
    for name in SECONDS:
        if not 0 <= getattr(args, name) < 1e6:
            raise UserError(f"--{name} {getattr(args, name)}: it must be seconds, 0 or more")
    given = {name: value for name, value in vars(args).items() if name in Options.__annotations__}
    given["data"] = Path(args.data) if args.data else None
    options = Options(folder=Path(args.dir), **given)
    with no_subnormals(), ExitStack() as until:
        if options.folder.is_dir():  # if not, it is the peer's to say; one at a time works there
            until.enter_context(held(options.folder))
        peer = Peer(options)
        set_up(peer.node, args.log_json)
        if peer.setup.symmetry_warning:
            say(peer.setup.symmetry_warning, logging.WARNING)

        def stop(*_: object) -> None:
            # Not here: a signal may come while this very thread holds one of the peer's locks.
            threading.Thread(target=peer.stop).start()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        try:
            summary = peer.run()
        except Alone as alone:  # not the input's fault: a service manager may try again
            complain(f"basil: {alone}")
            return ALONE
    if summary is None:
        complain(f"stopped; go on with: basil node --dir {args.dir}")
        return STOPPED
    return 0


def up(args: argparse.Namespace) -> int:
    """basil peers up"""
    needs_peers()
    from basil.errors import UserError
    from basil.peer.run.local_ring import ALL, LocalRing, check_state, drill, warm_up
    from basil.peer.run.merge import merge
    from basil.reporting.results_table import as_text, results_table

    ring = Path(args.dir)
    check_state(ring, args.resume, args.fresh)
    recipe = warm_up(ring)
    byzantine = drill(recipe)
    shared = [f"--device={args.device}", f"--threads={args.threads}", *(["--twin"] * args.twin)]
    given = ("quorum",) if args.quorum is not None else ()
    shared += [f"--{name}={getattr(args, name)}" for name in (*SECONDS, *given)]
    family = LocalRing(ring, _logged)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops it as Ctrl-C does
    with watching(ring, "ring", args.watch) as stay:
        try:
            family.start(
                lambda node: [*shared, *(["--attack", recipe.attack.name] * (node in byzantine))]
            )
            _watch(family)
        except KeyboardInterrupt:
            family.stop()
            complain(f"stopped; go on with: basil peers up --resume --dir {ring}")
            return STOPPED
        finally:
            family.stop()
        for sentence in family.complaints():
            warn(sentence)
        if all(family.codes.values()):
            raise UserError(f"no node of {ring} came to its end")
        try:
            run = merge(ring, ring / ALL)
        except OSError as error:
            raise UserError(
                f"{ring / ALL} cannot be written: {error.strerror}; the nodes' own runs are whole"
            ) from error
        print(as_text(results_table([run])))
        print(f"\nrun folder  {run.folder}\nreport      basil report {run.folder}")
        stay()
    return 0


def _logged(words: Sequence[str]) -> int:
    """The command of a node whose output is a file, where a sentence is one line."""
    from basil.cli import main

    os.environ.pop("COLUMNS", None)
    return main(words)


def _watch(family: Any) -> None:
    """Until all have ended; on a terminal with a live table."""
    import time

    from basil.peer.run.local_ring import LOOK
    from basil.peer.run.status import HEADER, rows

    def table() -> Any:
        from rich.table import Table

        made = Table(*HEADER, box=None, header_style="bold")
        for row in rows(family.look(), family.folders):
            made.add_row(*row)
        return made

    if not sys.stderr.isatty():
        while family.alive:
            family.look()
            time.sleep(LOOK)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(table(), console=Console(stderr=True), transient=True) as live:
        while family.alive:
            time.sleep(LOOK)
            live.update(table())


def status(args: argparse.Namespace) -> int:
    """basil peers status"""
    import json
    from dataclasses import asdict

    needs_peers()
    from basil.peer.run.status import HEADER, node_folders, read, revoked_in, rows
    from basil.reporting.results_table import as_text

    folders = node_folders(Path(args.dir))
    found, revoked = [read(folder) for folder in folders], revoked_in(Path(args.dir))
    if args.json:
        known = [each and {**asdict(each), "revoked": each.node in revoked} for each in found]
        print(json.dumps(known))
        return 0
    print(as_text([list(HEADER), *map(list, rows(found, folders, revoked))]))
    if revoked:
        print(f"\nrevoked  {' '.join(map(str, revoked))}")
    return 0
