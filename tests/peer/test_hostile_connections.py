"""Connections that somebody holds to keep others out: whoever holds the most gives way."""

import socket
import struct
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from basil.peer.link import rpc
from basil.peer.link.connections import _place_of
from basil.peer.members import authority

from hostile_http2 import call, frame, raw
from peer_helpers import QUICK, STAGE, Peer, model, until

MANY = 60
STREAMS_AT_ONCE, WINDOW = 3, 4  # of the settings of HTTP/2: RFC 9113, section 6.5.2
# 16 places for four; nothing is closed for any other reason while a test runs.
PATIENT = {"handshake": 120.0, "keepalive": 120.0, "keepalive_answer": 120.0}
LIMITS = replace(QUICK, connections=4, asks_burst=1000, **PATIENT)  # type: ignore[arg-type]


def _honest_get_in(ring: Path, victim: Peer, newcomer: int) -> None:
    with Peer(ring, newcomer) as honest:
        assert honest.transport.ask(1, "who", b"", 60.0) == b"%d" % newcomer
        honest.transport.send((1,), STAGE, 1, model())
        assert honest.transport.flush(60)
    assert victim.transport.counters[newcomer].received == 1


def test_half_open_connections_of_strangers_keep_nobody_out(ring: Path) -> None:
    with Peer(ring, 1, LIMITS) as victim, Peer(ring, 2) as early, ExitStack() as ends:
        victim.transport.answers["who"] = lambda sender, payload: b"%d" % sender
        assert early.transport.ask(1, "who", b"", 60.0) == b"2"
        host, _, port = victim.transport.address.rpartition(":")
        for _ in range(MANY):
            ends.enter_context(socket.create_connection((host, int(port)), 60))
        _honest_get_in(ring, victim, 3)
        assert early.transport.ask(1, "who", b"", 60.0, patient=False) == b"2"  # it stood all along


def test_the_many_connections_of_one_member_keep_nobody_else_out(ring: Path) -> None:
    with Peer(ring, 1, LIMITS) as victim, Peer(ring, 2) as early, ExitStack() as ends:
        victim.transport.answers["who"] = lambda sender, payload: b"%d" % sender
        assert early.transport.ask(1, "who", b"", 60.0) == b"2"
        for _ in range(MANY):
            with suppress(OSError):  # turned away, for this moment
                link = ends.enter_context(raw(ring / "node-0", victim.transport.address))
                # A call that is listened to makes the connection this member's.
                link.sendall(frame(1, 4, 1, call(rpc.ASK)) + frame(0, 1, 1, b"\0\0\0\0\1x"))
        assert until(lambda: victim.refused(0).get("frame", 0) > 8)
        _honest_get_in(ring, victim, 3)
        assert early.transport.ask(1, "who", b"", 60.0, patient=False) == b"2"


def test_the_connections_of_a_revoked_member_are_nobodys(ring: Path) -> None:
    with Peer(ring, 1, LIMITS) as victim, ExitStack() as ends:
        victim.transport.answers["who"] = lambda sender, payload: b"%d" % sender
        assert victim.transport.adopt(authority.revoke(ring, 0))
        for _ in range(MANY):
            with suppress(OSError):  # turned away, for this moment
                ends.enter_context(raw(ring / "node-0", victim.transport.address))
        _honest_get_in(ring, victim, 3)


def test_connections_are_known_by_their_other_end() -> None:
    assert _place_of("ipv4:127.0.0.1:4711") == ("127.0.0.1", 4711)
    assert _place_of("ipv6:%5B::1%5D:4711") == ("::1", 4711)
    assert _place_of("ipv6:[::ffff:10.0.0.1]:80") == ("10.0.0.1", 80)
    assert _place_of("unix:") == ("", 0)


def test_what_comes_before_anybody_reads_it_is_bounded(ring: Path) -> None:
    """HTTP/2 lets a client send no more than the server's settings say."""
    with Peer(ring, 1, LIMITS) as victim, raw(ring / "node-0", victim.transport.address) as link:
        kind, settings = _first_frame(link)
    assert kind == 4
    values = dict(struct.iter_unpack(">HI", settings))
    assert (values[STREAMS_AT_ONCE], values[WINDOW]) == (rpc.STREAMS, LIMITS.window)


def _first_frame(link: socket.socket) -> tuple[int, bytes]:
    head = _exactly(link, 9)
    return head[3], _exactly(link, int.from_bytes(head[:3], "big"))


def _exactly(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += link.recv(count - len(data))
    return data


def test_nobody_is_disturbed_as_long_as_there_is_room(ring: Path) -> None:
    limits = replace(LIMITS, connections=1000)
    with Peer(ring, 1, limits) as victim, ExitStack() as ends:
        victim.transport.answers["who"] = lambda sender, payload: b"%d" % sender
        place = victim.transport.address
        links = [ends.enter_context(raw(ring / "node-0", place)) for _ in range(30)]
        _honest_get_in(ring, victim, 3)
        assert not any(map(_is_closed, links))


def _is_closed(link: socket.socket) -> bool:
    link.settimeout(0.01)
    try:
        while link.recv(4096):
            pass
    except TimeoutError:
        return False
    return True
