"""A Prometheus endpoint: how this node is, and what it thinks of the others.

It listens on loopback unless told otherwise: there is no password, and who selects whom is nobody
else's business.  Nor does it let anybody use up this process's files and threads: it has few
connections at a time, and a new one displaces the oldest.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from socketserver import ThreadingMixIn
from threading import Lock, Semaphore, Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from basil.errors import UserError
from basil.peer.run.status import Status

COUNTS = ("sent", "received", "bytes_sent", "bytes_received", "retries", "dropped")
Counts = dict[int, dict[str, Any]]
CONNECTIONS = 8  # at a time
SECONDS = 5.0  # in which each must say something, or take what it is sent


class Figures:
    """Reads off the node's status and the transport's counters whenever somebody asks."""

    def __init__(self, status: Callable[[], Status], peers: Callable[[], Counts]) -> None:
        self._status, self._peers = status, peers

    def collect(self) -> Iterator[Metric]:
        s = self._status()
        yield _gauge("round", "the latest round that this node has finished", s.round)
        yield _gauge("turn_seconds", "its last turn, without waiting", s.turn)
        yield _gauge("patience_seconds", "how long it waits for a turn of another", s.patience)
        yield _gauge("missing", "predecessors or neighbours that are silent", len(s.missing))
        yield _gauge("excluded", "nodes proven to have said two things", len(s.excluded))
        yield _gauge("done", "1 once it has finished all rounds", int(s.phase == "done"))
        if s.accuracy is not None:
            yield _gauge("accuracy", "of its own model on the test set", s.accuracy)
        peers = self._peers()
        for what in COUNTS:
            family = CounterMetricFamily(f"basil_peer_{what}", "with each peer", labels=["peer"])
            for peer, counts in peers.items():
                family.add_metric([str(peer)], counts.get(what, 0))
            yield family
        refused = CounterMetricFamily(
            "basil_peer_refused", "what was not taken, and why", labels=["peer", "reason"]
        )
        for peer, counts in peers.items():
            for reason, count in counts.get("refused", {}).items():
                refused.add_metric([str(peer), reason], count)
        yield refused


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"basil_{name}", text, value=value)


def serve(address: str, figures: Figures) -> Callable[[], None]:
    """Listen at host:port.  Returns what ends it."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UserError(f"--metrics {address}: write it as 127.0.0.1:9100")
    registry = CollectorRegistry()
    registry.register(figures)
    try:
        server = Server(host or "127.0.0.1", int(port))
    except OSError as error:
        raise UserError(f"--metrics {address} cannot be listened on: {error.strerror}") from error
    server.set_app(make_wsgi_app(registry))
    thread = Thread(target=server.serve_forever, name="basil-metrics", daemon=True)
    thread.start()

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end


class Handler(WSGIRequestHandler):
    """One connection, which is given up if it stands still."""

    timeout = SECONDS

    def log_message(self, format: str, *args: object) -> None:
        """Not to the node's log."""


class Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, and few of them."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int) -> None:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self.address_family = family
        self._places, self._lock = Semaphore(CONNECTIONS), Lock()
        self._open: dict[Any, None] = {}  # the oldest first
        super().__init__((str(place[0]), port), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            with self._lock, suppress(StopIteration, OSError):  # it may have ended meanwhile
                next(iter(self._open)).shutdown(socket.SHUT_RDWR)
            self._places.acquire()
        with self._lock:
            self._open[request] = None
        super().process_request(request, client_address)

    def close_request(self, request: Any) -> None:
        super().close_request(request)
        with self._lock:
            known = request in self._open
            self._open.pop(request, None)
        if known:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hangs up or says nothing is not worth a line in the node's log."""
