"""The server of the page: read-only, for whoever has the address with its token.

A browser lets any page that somebody visits send requests to this machine.  So every address has a
secret in it, the name under which the server is called must be one of its own, and the page may
load nothing from elsewhere and run no script but those that come with it.
"""

import asyncio
import ipaddress
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from basil.errors import UserError
from basil.watch.start import is_loopback
from basil.watch.view import Cursor, View

PAGE = Path(__file__).parent / "page"
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
LOOK = 0.5  # seconds from one look at the files to the next, however many pages are open
ALIVE = 15.0  # seconds after which a page that is told nothing is told so: is it still there?
MOST_PAGES = 100  # open at a time
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Guard:
    """Before anything else: the method, the name of the server, and the token."""

    def __init__(self, app: ASGIApp, token: str, is_ours: Callable[[str], bool]) -> None:
        self._app, self._token, self._is_ours = app, token.encode(), is_ours

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # a start or an end; there are no websockets
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        _, token, *rest = (scope["path"] + "/").split("/", 2)
        answer: ASGIApp
        if scope["method"] != "GET":
            answer = PlainTextResponse("This page can only be read.\n", 405, {"allow": "GET"})
        elif len(hosts) != 1 or not self._is_ours(hosts[0].decode("latin-1")):
            answer = PlainTextResponse("This server is not called so.\n", 421)
        elif not secrets.compare_digest(token.encode(), self._token):
            sentence = "Wrong or missing token: open the address that basil watch printed.\n"
            answer = PlainTextResponse(sentence, 403)
        elif scope["path"].count("/") == 1:  # the page's own addresses begin after the token
            answer = RedirectResponse(f"{scope['path']}/")
        else:
            answer = self._app
            scope = {**scope, "path": "/" + rest[0].rstrip("/")}

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        await answer(scope, receive, with_headers)


class Audience:
    """All pages that look at one thing: files are read once for all of them."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.pages = 0
        self._looked = -LOOK
        self._lock = asyncio.Lock()
        self._told: dict[Cursor | None, tuple[bytes | None, Cursor]] = {}

    async def news(self, cursor: Cursor | None) -> tuple[bytes | None, Cursor]:
        """What is new, as JSON; pages that know as much as others are told the same bytes."""
        async with self._lock:
            if time.monotonic() - self._looked >= LOOK:
                await asyncio.to_thread(self.view.look)
                self._looked, self._told = time.monotonic(), {}
            if cursor not in self._told:
                told, now = self.view.news(cursor)
                text = None if told is None else _json(told)
                self._told[cursor] = text, now
            return self._told[cursor]

    async def rounds(self, first: int, last: int) -> bytes:
        async with self._lock:
            return _json(self.view.rounds(first, last))

    async def events(self, over: Callable[[], bool]) -> AsyncIterator[bytes]:
        self.pages += 1
        try:
            yield b"retry: 1000\n\n"
            cursor, said = None, time.monotonic()
            while not over():
                text, cursor = await self.news(cursor)
                if text is not None:
                    yield b"data: " + text + b"\n\n"
                    said = time.monotonic()
                elif time.monotonic() - said > ALIVE:
                    yield b": still here\n\n"
                    said = time.monotonic()
                await asyncio.sleep(LOOK)
        finally:
            self.pages -= 1


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def application(
    view: View, token: str, is_ours: Callable[[str], bool], over: Callable[[], bool]
) -> ASGIApp:
    """The pages of one view; `over`: is the server about to end?"""
    files = {path.name: path for path in PAGE.iterdir() if path.suffix in KINDS}
    audiences: dict[str, Audience] = {"": Audience(view)}

    def audience(request: Request) -> Audience | None:
        name = request.query_params.get("run", "")
        if name not in audiences:
            part = view.part(name)
            if part is None:
                return None
            audiences[name] = Audience(part)
        return audiences[name]

    async def page(request: Request) -> Response:
        path = files.get(request.path_params.get("name", "index.html"))
        if path is None:
            return PlainTextResponse("There is no such file.\n", 404)
        return Response(path.read_bytes(), media_type=KINDS[path.suffix])

    async def events(request: Request) -> Response:
        found = audience(request)
        if found is None:
            return PlainTextResponse("There is no such run.\n", 404)
        if sum(each.pages for each in audiences.values()) >= MOST_PAGES:
            return PlainTextResponse("Too many pages are open.\n", 503)
        return StreamingResponse(found.events(over), media_type="text/event-stream")

    async def rounds(request: Request) -> Response:
        found = audience(request)
        try:
            first, last = (int(request.query_params[name]) for name in ("first", "last"))
        except (KeyError, ValueError):
            return PlainTextResponse("first and last must be rounds.\n", 400)
        if found is None:
            return PlainTextResponse("There is no such run.\n", 404)
        return Response(await found.rounds(max(0, first), last), media_type="application/json")

    app = Starlette(
        routes=[
            Route("/", page),
            Route("/events", events),
            Route("/rounds", rounds),
            Route("/{name}", page),
        ]
    )
    return Guard(app, token, is_ours)


def names_of(bind: str, port: int) -> Callable[[str], bool]:
    """Is a Host header one under which this server may be called?

    A name could be made to lead here by whoever owns it (DNS rebinding); an address cannot.
    """
    own = {"localhost"} if is_loopback(bind) else {"localhost", bind, socket.gethostname()}

    def is_ours(host: str) -> bool:
        name, _, given = host.rpartition(":")
        if given != str(port):
            return False
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name.lower() in own
        return address.is_loopback or not is_loopback(bind)

    return is_ours


def listen(bind: str, port: int) -> socket.socket:
    """A socket at this address; port 0: any that is free."""
    if port > 65535:
        raise UserError(f"--port {port}: it must be at most 65535")
    with ExitStack() as unless_it_works:
        try:
            family, *_, place = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0]
            made = unless_it_works.enter_context(socket.socket(family, socket.SOCK_STREAM))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(place)
            made.listen()  # whoever is told the address may call at once
        except OSError as error:
            raise UserError(f"{bind}:{port} cannot be listened on: {error.strerror}") from error
        unless_it_works.pop_all()
    return made


def address(made: socket.socket, bind: str, token: str) -> str:
    """What to open; of a server on all interfaces, by this machine's name."""
    everywhere = bind in ("0.0.0.0", "::", "")
    host = socket.gethostname() if everywhere else bind
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{made.getsockname()[1]}/{token}/"


def server(view: View, made: socket.socket, bind: str, token: str) -> uvicorn.Server:
    """Ready to run: `server.run(sockets=[made])`."""
    is_ours = names_of(bind, made.getsockname()[1])
    app = application(view, token, is_ours, lambda: running.should_exit)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # it would hold the token
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
        limit_concurrency=2 * MOST_PAGES,
        ws="none",
    )
    running = uvicorn.Server(config)
    return running
