"""A Prometheus endpoint: how this node is, and what it thinks of the others.

It listens on loopback unless told otherwise: there is no password, and who selects whom is nobody
else's business.
"""

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from basil.errors import UserError
from basil.peer.run.status import Status

COUNTS = ("sent", "received", "bytes_sent", "bytes_received", "retries", "dropped")
Counts = dict[int, dict[str, Any]]


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
        server, thread = start_http_server(int(port), host or "127.0.0.1", registry)
    except OSError as error:
        raise UserError(f"--metrics {address} cannot be listened on: {error.strerror}") from error

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end
