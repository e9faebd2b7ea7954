"""Who holds the connections to this node; where they are scarce, whoever holds the most gives way.

gRPC bounds their number, and then turns away whoever comes next: half-open connections of
strangers, or the many of one member, would keep all others out.  It says neither whose a connection
is nor closes one.  But the sockets are this process's own, and each call says where it comes from.
"""

import os
import socket
from collections import defaultdict
from contextlib import ExitStack, suppress
from urllib.parse import unquote

from basil.host import host

_MAPPED = "::ffff:"  # begins an address of IPv4 in the form of IPv6

Place = tuple[str, int]  # host and port of the other end


class Connections:
    """Those that came in at one address: once half of the places are held, the rest stays free."""

    def __init__(self, address: str, most: int) -> None:
        self._port, self._most = _place_of(f":{address}")[1], most
        self._lock = host.lock()
        self._owner: dict[Place, int] = {}  # whose calls were listened to
        self._since: dict[Place, float] = {}

    def belongs(self, peer: str, node: int) -> None:
        """A call of this member came from there; `peer` as gRPC writes it."""
        place = _place_of(peer)
        with self._lock:
            self._owner[place] = node

    def sweep(self) -> None:
        """Close what is too much.  Called often, and does nothing as long as there is room."""
        with suppress(OSError):
            many = len(os.listdir("/dev/fd")) > self._most // 2
            if many or len(self._owner) > 2 * self._most:
                self._thin_out()

    def _thin_out(self) -> None:
        with ExitStack() as at_the_end:
            ends = {}
            for file in map(int, os.listdir("/dev/fd")):
                end = _duplicate(file)
                if end is not None:
                    at_the_end.enter_context(end)
                    place = self._other_end(end)
                    if place is not None:
                        ends[place] = end
            now = host.monotonic()
            with self._lock:
                self._owner = {p: node for p, node in self._owner.items() if p in ends}
                self._since = {p: self._since.get(p, now) for p in ends}
                held = defaultdict[int | None, list[Place]](list)  # None: by nobody that we know
                for place in sorted(ends, key=self._since.__getitem__):
                    held[self._owner.get(place)].append(place)
            for _ in range(len(ends) - self._most // 2):
                most = max(held.values(), key=len)
                with suppress(OSError):
                    ends[most.pop(0)].shutdown(socket.SHUT_RDWR)

    def _other_end(self, end: socket.socket) -> Place | None:
        """None unless somebody has connected to our port."""
        try:
            if end.getsockname()[1] != self._port:
                return None
            host, port, *_ = end.getpeername()
        except (OSError, IndexError, TypeError, ValueError):  # it listens, or is something else
            return None
        return host.removeprefix(_MAPPED), port


def _duplicate(file: int) -> socket.socket | None:
    """Not the file itself, which gRPC may close at any moment: its number would be another's."""
    try:
        copy = os.dup(file)
    except OSError:
        return None
    try:
        return socket.socket(fileno=copy)
    except OSError:  # no socket
        os.close(copy)
        return None


def _place_of(peer: str) -> Place:
    """ipv4:127.0.0.1:4711 or ipv6:%5B::1%5D:4711"""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return host.strip("[]").removeprefix(_MAPPED), int(port) if port.isdecimal() else 0
