"""basil watch, and --watch of other commands."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from basil.cli.arguments import whole
from basil.cli.say import complain, warn

LOOPBACK = "127.0.0.1"


def add_watch(commands: Any) -> None:
    """basil watch PATH"""
    watch = commands.add_parser("watch", help="a live page: a run, many runs, or a ring of peers")
    watch.add_argument("path", metavar="PATH", help="the folder of a run, of many, or of a ring")
    watch.add_argument("--port", type=whole, default=0, help="default: any that is free")
    watch.add_argument(
        "--bind",
        default=LOOPBACK,
        metavar="ADDRESS",
        help=f"listen elsewhere than on {LOOPBACK}: others can then reach the page",
    )
    watch.add_argument("--no-open", action="store_true", help="print the address, open no browser")
    watch.set_defaults(command="watch", home="basil.cli.watch")


def add_watching(command: argparse.ArgumentParser) -> None:
    command.add_argument("--watch", action="store_true", help="open a live page of it")


def watch(args: argparse.Namespace) -> int:
    """basil watch PATH"""
    from basil.watch.start import check_installed, is_loopback, kind_of, open_browser, serve

    check_installed()
    path = Path(args.path)
    kind = kind_of(path)
    if not is_loopback(args.bind):
        warn(
            f"--bind {args.bind}: whoever reaches that address and has the token sees this page,"
            " and it travels unencrypted; nobody can change anything"
        )
    left: list[Path | None] = []

    def opened(url: str) -> None:
        print(f"page  {url}\nCtrl-C ends it", flush=True)
        if not args.no_open:
            left.append(open_browser(url))

    try:
        serve(path, kind, args.bind, args.port, opened)
    finally:
        _remove(left)
    return 0


@contextmanager
def watching(folder: Path, kind: str, wanted: bool) -> Iterator[Callable[[], None]]:
    """A page of what goes on meanwhile.  Gives what keeps it open at the end, until Ctrl-C.

    Where nobody sits at a terminal, it ends with the command.
    """
    if not wanted:
        yield lambda: None
        return
    from basil.watch.start import beside, open_browser

    with beside(folder, kind) as page:
        assert page.stdout is not None
        url = page.stdout.readline().strip()
        left: list[Path | None] = []
        if url:  # else it has said why not
            print(f"page  {url}", file=sys.stderr, flush=True)
            left.append(open_browser(url))

        def stay() -> None:
            if url and sys.stdin.isatty() and sys.stderr.isatty():
                complain("the page stays open until Ctrl-C")
                with suppress(KeyboardInterrupt):
                    page.wait()

        try:
            yield stay
        finally:
            _remove(left)


def _remove(files: list[Path | None]) -> None:
    for file in files:
        if file is not None:
            file.unlink(missing_ok=True)
