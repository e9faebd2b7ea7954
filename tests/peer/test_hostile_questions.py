"""Questions as a weapon: opened and not put, forged, badly named, compressed."""

import ssl
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from basil.peer.link import questions, rpc
from basil.peer.link.gossip import BATCH, SEEN
from basil.peer.link.questions import Frame
from basil.peer.members import authority
from basil.peer.members.roster import Roster, load_roster

from hostile_http2 import call, frame, raw
from peer_helpers import QUICK, Peer, Rogue, Victim, frames_of, model, until

CONNECTIONS = 10  # with two calls each: more than all threads that serve a ring of four


class HalfOpen:
    """Calls that a member opens, as many on a connection as it may, and then says nothing on."""

    def __init__(self, rogue: Rogue, to: int, method: str, connections: int) -> None:
        self._over = threading.Event()
        self.calls = [
            channel.stream_unary(method).future(self._nothing(), timeout=60)
            for channel in [rogue.channel(to) for _ in range(connections)]
            for _ in range(rpc.STREAMS)
        ]

    def _nothing(self) -> Iterator[bytes]:
        self._over.wait(60)
        yield b""

    @property
    def ended(self) -> int:
        return sum(call.done() for call in self.calls)

    def __enter__(self) -> "HalfOpen":
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for open_call in self.calls:
            open_call.cancel()


# -- opened, and not put ---------------------------------------------------------------------


def test_questions_that_are_opened_and_not_put_keep_nobody_else_waiting(ring: Path) -> None:
    limits = replace(QUICK, stall=30.0, grace=30.0)
    with Peer(ring, 1, limits) as b, Peer(ring, 2) as c, Rogue(ring, 0) as rogue:
        b.transport.answers["who"] = lambda sender, payload: b"%d" % sender
        with HalfOpen(rogue, 1, rpc.ASK, CONNECTIONS) as calls:
            # Two of them hold the two places of their sender, all others are sent away.
            assert until(lambda: calls.ended == len(calls.calls) - limits.asking, 20)
            assert b.refused(0) == {"busy": calls.ended}
            assert c.transport.ask(1, "who", b"", 20.0) == b"2"
            c.transport.send((1,), "train", 1, model())
            assert c.transport.flush(20)
            assert b.rounds == [1]
            assert calls.ended == len(calls.calls) - limits.asking  # they are open all the while


def test_a_question_that_is_opened_and_not_put_is_ended(ring: Path) -> None:
    limits = replace(QUICK, stall=0.3)
    with Peer(ring, 1, limits) as b, Rogue(ring, 0) as rogue:
        with HalfOpen(rogue, 1, rpc.ASK, 1) as calls:
            assert until(lambda: calls.ended == rpc.STREAMS)
            assert until(lambda: b.refused(0) == {"slow": rpc.STREAMS})
        assert b.transport._asking == {}


def test_a_revoked_member_cannot_hold_a_question_open(ring: Path) -> None:
    with Peer(ring, 1, replace(QUICK, stall=30.0)) as b, Rogue(ring, 0) as rogue:
        assert b.transport.adopt(authority.revoke(ring, 0))
        with HalfOpen(rogue, 1, rpc.ASK, CONNECTIONS) as calls:
            assert until(lambda: calls.ended == len(calls.calls), 20)
        assert b.refused(0) == {"revoked": len(calls.calls)}


# -- put, and wrong --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["\ud800", "\n", "who\x00", "é", ""])
def test_a_question_with_an_odd_name_is_refused_and_not_repeated(
    peer: Peer, rogue: Rogue, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A lone surrogate can be written in JSON, and in nothing that is sent back."""
    data = questions.encode(Frame(0, 1, name, "x", b""), rogue.identity, rogue.roster.run)
    with pytest.raises(grpc.RpcError) as caught:
        rogue.channel(1).unary_unary(rpc.ASK)(data, timeout=10)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details().startswith("frame")
    assert peer.refused(0) == {"frame": 1}
    assert capfd.readouterr().err == ""  # gRPC prints what a handler raises


def test_forged_manifests_cost_one_look_at_signatures(
    ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who passes on what nobody signed lies itself: the rest of its batch is not looked at."""
    with Peer(ring, 1) as b, Peer(ring, 2) as slanderer, Rogue(ring, 0) as honest:
        manifest, body = honest.packed(5, model())
        assert honest.deliver(1, frames_of(manifest, body)) == "taken"
        forged = [replace(manifest, sha256=f"{i:064x}").encode() for i in range(BATCH)]
        looks = _count_looks(monkeypatch)
        assert slanderer.transport.ask(1, SEEN, b"\n".join(forged), 20.0) is None
        assert b.refused(2) == {"signature": 1}
        assert looks.count(0) <= 2
        assert b.transport.evidence.excluded == frozenset()


def test_manifests_of_a_node_that_is_excluded_cost_nothing(
    ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two members that lie together: one signs all that the other passes on."""
    with Peer(ring, 1) as b, Peer(ring, 2) as helper, Rogue(ring, 0) as byzantine:
        manifest, body = byzantine.packed(5, model())
        assert byzantine.deliver(1, frames_of(manifest, body)) == "taken"
        signed = [byzantine.signed(manifest, sha256=f"{i:064x}").encode() for i in range(BATCH)]
        looks = _count_looks(monkeypatch)
        for _ in range(3):
            assert helper.transport.ask(1, SEEN, b"\n".join(signed), 20.0) == b"compared"
        assert b.transport.evidence.excluded == {0}
        assert looks.count(0) < 20  # to find it out, and for node 2 to be told


def _count_looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Whose signatures were looked at, from now on."""
    looks: list[int] = []
    verify = Roster.verify

    def counted(roster: Roster, node: int, signature: bytes, content: bytes) -> bool:
        looks.append(node)
        return verify(roster, node, signature, content)

    monkeypatch.setattr(Roster, "verify", counted)
    return looks


# -- compressed ------------------------------------------------------------------------------


def _send_bomb(link: ssl.SSLSocket, method: str, bomb: bytes) -> None:
    message = b"\1" + len(bomb).to_bytes(4, "big") + bomb
    link.sendall(frame(1, 4, 1, call(method, encoding="gzip")))
    for i in range(0, len(message), 16_000):
        link.sendall(frame(0, 0, 1, message[i : i + 16_000]))
    link.sendall(frame(0, 1, 1, b""))


def test_what_is_compressed_is_read_as_it_is(ring: Path, peer: Peer) -> None:
    """And is then no manifest, and no question."""
    address, small = peer.transport.address, _zeros(1 << 20)
    with raw(ring / "node-0", address) as one, raw(ring / "node-0", address) as other:
        _send_bomb(one, rpc.DELIVER, small)
        _send_bomb(other, rpc.ASK, small)
        assert until(lambda: peer.refused(0) == {"manifest": 1, "frame": 1})


@pytest.mark.slow
def test_a_compressed_bomb_is_not_blown_up(ring: Path) -> None:
    """63 KB that are 63 MiB, ten times as a transfer and ten times as a question."""
    bomb = _zeros(63 << 20)
    assert len(bomb) < 65_000  # it fits into the window, and comes as a whole
    address = load_roster(ring).members[1].address
    with Victim(ring, 1) as victim, Rogue(ring, 2) as honest, ExitStack() as links:
        for method in 10 * [rpc.DELIVER, rpc.ASK]:
            link = links.enter_context(raw(ring / "node-0", address))
            _send_bomb(link, method, bomb)
        assert until(lambda: _said(victim, 0) == 20, 60)
        assert honest.deliver(1, frames_of(*honest.packed(1, model()))) == "taken"
        facts = victim.tell()
    assert facts["most"] - victim.at_rest < 32 << 20  # half of one


def _said(victim: Victim, node: int) -> int:
    """How often that node has been refused."""
    return sum(victim.tell()["refused"][str(node)].values())


def _zeros(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()
