"""From a path to an open page: what lies there, a server for it, and a browser."""

import ipaddress
import os
import re
import secrets
import subprocess
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from html import escape
from importlib.util import find_spec
from pathlib import Path

from basil.errors import UserError
from basil.record.read import MARK
from basil.watch.collection_view import CollectionView
from basil.watch.run_view import RunView
from basil.watch.view import View

LOOPBACK = "127.0.0.1"
TOKEN = "BASIL_WATCH_TOKEN"
GENTLE = 10  # added to the niceness: whoever computes goes first
RUN, COLLECTION, RING = "run", "collection", "ring"


def check_installed() -> None:
    """What only the page needs may not be installed."""
    for module in ("starlette", "uvicorn"):
        if find_spec(module) is None:
            raise UserError(f"{module} is missing: pip install 'basil-fl[watch]'")


def kind_of(path: Path) -> str:
    """What lies there."""
    if not path.is_dir():
        raise UserError(f"{path} is no folder: give that of a run, of many runs, or of a ring")
    if (path / MARK).exists():
        return RUN
    return RING if (path / "roster.toml").exists() else COLLECTION


def view_of(path: Path, kind: str) -> View:
    """What its page shows."""
    if kind == RUN:
        return RunView(path)
    if kind == COLLECTION:
        return CollectionView(path)
    try:
        from basil.watch.ring_view import RingView
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is missing: pip install 'basil-fl[peers]'") from error
    return RingView(path)


def is_loopback(bind: str) -> bool:
    """Does nobody else reach this address?"""
    try:
        return bind == "localhost" or ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return False


def token() -> str:
    """A new one each time, unless the environment has one for an address that stays the same."""
    given = os.environ.get(TOKEN, "")
    if given and not re.fullmatch(r"[A-Za-z0-9_-]{22,}", given):
        raise UserError(f"{TOKEN} must have at least 22 letters, digits, - or _")
    return given or secrets.token_urlsafe(24)


def serve(path: Path, kind: str, bind: str, port: int, opened: Callable[[str], None]) -> None:
    """Until it is interrupted.  `opened` is told the address."""
    check_installed()
    from basil.watch.server import address, listen, server

    view = view_of(path, kind)
    secret, made = token(), listen(bind, port)
    with suppress(OSError):
        os.nice(GENTLE)
    with made, suppress(KeyboardInterrupt):
        running = server(view, made, bind, secret)
        opened(address(made, bind, secret))
        running.run(sockets=[made])


@contextmanager
def beside(path: Path, kind: str) -> Iterator[subprocess.Popen[str]]:
    """A page in a process of its own, while something else runs here.

    It ends with this process, however that ends: its input is a pipe from here.
    """
    check_installed()
    words = [sys.executable, "-P", "-m", "basil.watch", str(path), kind]
    pipe = subprocess.PIPE
    # Ctrl-C at the terminal is for the run alone, which may want to finish its checkpoint.
    child = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
    try:
        yield child
    finally:
        child.terminate()
        child.wait()
        for end in (child.stdin, child.stdout):
            if end is not None:
                end.close()


def open_browser(url: str) -> Path | None:
    """Where there is a screen.  Other users see the arguments of a process: so the browser is given
    a file that only this user can read, and that leads to the address.
    """
    if sys.platform != "darwin" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        return None
    handle, name = tempfile.mkstemp(prefix="basil-watch-", suffix=".html")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f'<meta http-equiv="refresh" content="0;url={escape(url)}">')
    webbrowser.open(Path(name).as_uri())
    return Path(name)
