"""The metrics port, which has no password: whoever reaches it can have the figures, and no more."""

import os
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from basil.peer.run import metrics
from basil.peer.run.metrics import Figures
from basil.peer.run.status import Status

from peer_helpers import free_ports, until

IDLE = 200


@pytest.fixture
def port() -> Iterator[int]:
    (port,) = free_ports(1)
    end = metrics.serve(f"127.0.0.1:{port}", Figures(lambda: Status(1, 2, round=7), dict))
    yield port
    end()


def _files() -> int:
    return len(os.listdir("/dev/fd"))


def _scrape(port: int) -> str:
    url = f"http://127.0.0.1:{port}/metrics"
    return str(urllib.request.urlopen(url, timeout=30).read().decode())


def _is_closed(end: socket.socket) -> bool:
    end.setblocking(False)
    try:
        return end.recv(1) == b""
    except BlockingIOError:
        return False


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 30)


def test_idle_connections_use_up_neither_files_nor_threads(port: int) -> None:
    before = _files()
    with ExitStack() as open_ends:
        for _ in range(IDLE):
            open_ends.enter_context(_connect(port))
        assert "basil_round 7.0" in _scrape(port)  # by then all of those have been accepted
        assert _files() - before - IDLE <= metrics.CONNECTIONS
        assert threading.active_count() < IDLE
    assert until(lambda: _files() <= before)


def test_a_connection_that_says_nothing_is_closed(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics.Handler, "timeout", 0.2)
    with _connect(port) as silent:
        assert silent.recv(1) == b""


def test_one_that_dribbles_gives_way_to_those_that_ask(port: int) -> None:
    """A byte now and then keeps a connection open; but only until others come."""
    with ExitStack() as open_ends:
        dribbling = [open_ends.enter_context(_connect(port)) for _ in range(metrics.CONNECTIONS)]
        for end in dribbling:
            end.sendall(b"G")
        for _ in range(2 * metrics.CONNECTIONS):
            assert "basil_round 7.0" in _scrape(port)
        assert sum(_is_closed(end) for end in dribbling) >= 1
