"""Strangers, and members that pose as others: no connection, or no hearing."""

import shutil
import socket
import ssl
from pathlib import Path

import grpc
import pytest

from basil.peer.limits import Limits
from basil.peer.link import rpc
from basil.peer.members import authority, certificates
from basil.peer.members.identity import load_identity
from basil.peer.members.roster import load_roster

from peer_helpers import (
    STAGE,
    Peer,
    Rogue,
    frames_of,
    make_ring,
    model,
    until,
)


def test_a_member_of_another_ring_with_the_same_names_gets_no_connection(
    peer: Peer, tmp_path: Path
) -> None:
    """Wrong CA."""
    other = make_ring(tmp_path / "other", 4)
    with Rogue(other, 0) as stranger:
        stranger.roster = peer.transport.roster
        answer = stranger.deliver(1, frames_of(*stranger.packed(1, model())))
    assert answer.startswith("UNAVAILABLE")
    assert peer.got == []


def test_a_server_of_another_ring_is_not_talked_to(ring: Path, tmp_path: Path) -> None:
    other = make_ring(tmp_path / "other", 4)
    address = load_roster(ring).members[1].address
    impostor = Peer(other, 1, listen=address)
    with Peer(ring, 0, limits=Limits(give_up=1.0)) as honest, impostor:
        honest.transport.send((1,), STAGE, 1, model())
        assert honest.transport.flush(10)
    assert honest.transport.counters[1].sent == 0
    assert impostor.got == []


def test_another_member_at_a_nodes_address_is_not_talked_to(ring: Path) -> None:
    """Node 2 listens where node 1 should be: it is a member, but not the one that was meant."""
    address = load_roster(ring).members[1].address
    impostor = Peer(ring, 2, listen=address)
    with Peer(ring, 0, limits=Limits(give_up=1.0)) as honest, impostor:
        honest.transport.send((1,), STAGE, 1, model())
        assert honest.transport.flush(10)
    assert honest.transport.counters[1].sent == 0
    assert impostor.got == []


def test_without_tls_or_without_a_certificate_there_is_no_connection(
    ring: Path, peer: Peer
) -> None:
    address = peer.transport.address
    authority_pem = (ring / "ca.crt").read_bytes()
    nameless = grpc.ssl_channel_credentials(root_certificates=authority_pem)
    override = [("grpc.ssl_target_name_override", "node-1")]
    for channel in (
        grpc.insecure_channel(address),
        grpc.secure_channel(address, nameless, override),
    ):
        with channel, pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(rpc.ASK)(b"", timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_certificate_that_has_expired_gets_no_connection(ring: Path, peer: Peer) -> None:
    folder = ring / "node-0"
    signer, key = authority._authority(ring)
    own = load_identity(folder).key.public_key()
    old = certificates.issue(0, own, signer, key, days=-1)
    assert old.not_valid_after_utc < load_identity(folder).certificate.not_valid_after_utc
    with Rogue(ring, 0) as rogue:
        object.__setattr__(rogue.identity, "certificate", old)
        answer = rogue.deliver(1, frames_of(*rogue.packed(1, model())))
    assert answer.startswith("UNAVAILABLE")
    assert peer.got == []


def test_a_second_certificate_for_the_same_name_is_not_the_one_in_the_roster(
    ring: Path, peer: Peer
) -> None:
    """As after a renewal: the old certificate, though not expired, is worth nothing any more."""
    signer, key = authority._authority(ring)
    with Rogue(ring, 0) as rogue:
        own = rogue.identity.key.public_key()
        object.__setattr__(rogue.identity, "certificate", certificates.issue(0, own, signer, key))
        answer = rogue.deliver(1, frames_of(*rogue.packed(1, model())))
    assert answer.startswith("PERMISSION_DENIED certificate")
    assert peer.refused(0) == {"certificate": 1}


def test_a_renewed_certificate_brings_its_roster_along(ring: Path, tmp_path: Path) -> None:
    """Only node 0's machine has the new roster; the others must hear of it from node 0 itself."""
    before = load_roster(ring)
    folder = tmp_path / "elsewhere"
    shutil.copytree(ring / "node-0", folder / "node-0")
    shutil.copytree(ring / "node-1", folder / "node-1")
    address = before.members[0].address
    out = authority.sign(ring, authority.request(folder / "node-0", 0, address))
    for file in out.iterdir():
        (folder / "node-0" / file.name).write_bytes(file.read_bytes())
    assert load_roster(folder / "node-1").version == 1
    with Peer(folder, 1) as old, Peer(folder, 0) as renewed:
        assert until(lambda: old.transport.roster.version == 2)
        renewed.transport.send((1,), STAGE, 1, model())
        assert renewed.transport.flush(10)
        assert old.rounds == [1]


def test_a_revoked_node_is_refused(ring: Path, peer: Peer, rogue: Rogue) -> None:
    frames = frames_of(*rogue.packed(1, model()))
    assert peer.transport.adopt(authority.revoke(ring, 0))
    assert rogue.deliver(1, frames).startswith("PERMISSION_DENIED revoked")
    assert peer.refused(0) == {"revoked": 1}
    with pytest.raises(grpc.RpcError, match="revoked"):
        rogue.channel(1).unary_unary(rpc.ASK)(b"anything", timeout=5)


def test_a_certificate_for_a_name_that_is_no_member_is_a_stranger(ring: Path, peer: Peer) -> None:
    signer, key = authority._authority(ring)
    with Rogue(ring, 0) as rogue:
        own = rogue.identity.key.public_key()
        object.__setattr__(rogue.identity, "certificate", certificates.issue(77, own, signer, key))
        answer = rogue.deliver(1, frames_of(*rogue.packed(1, model())))
    assert answer.startswith("PERMISSION_DENIED unknown")
    assert peer.transport.counters.strangers == {"unknown": 1}


def test_nobody_sends_in_the_name_of_another(ring: Path, peer: Peer, rogue: Rogue) -> None:
    """Neither with its own signature, nor with one that it was given by the other."""
    with Rogue(ring, 3) as other:
        genuine, data = other.packed(1, model())
    assert rogue.deliver(1, frames_of(genuine, data)).startswith("PERMISSION_DENIED sender")
    claimed = rogue.signed(genuine, sender=0)
    forged = rogue.signed(claimed, sender=3)
    assert rogue.deliver(1, frames_of(forged, data)).startswith("PERMISSION_DENIED sender")
    assert peer.got == []
    assert peer.refused(0) == {"sender": 2}


# -- connections -----------------------------------------------------------------------------


def test_a_tcp_connection_that_says_nothing_is_closed(ring: Path) -> None:
    """It would hold a file descriptor for ever."""
    with (
        Peer(ring, 1, limits=Limits(handshake=0.5)) as peer,
        socket.create_connection(_place(peer), 5) as silent,
    ):
        silent.settimeout(10)
        assert _closed(silent)


def test_garbage_instead_of_a_handshake_is_closed(peer: Peer) -> None:
    for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(70000), b"\0" * 100):
        with socket.create_connection(_place(peer), 5) as stranger:
            stranger.settimeout(10)
            stranger.sendall(junk)
            assert _closed(stranger)


def _closed(end: socket.socket) -> bool:
    """Does the other side close?  (It may send an alert first.)"""
    try:
        while end.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def test_old_versions_of_tls_are_not_spoken(ring: Path, peer: Peer) -> None:
    folder = ring / "node-0"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    context.load_verify_locations(folder / "ca.crt")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-SHA:@SECLEVEL=0")  # without forward secrecy
    with (
        socket.create_connection(_place(peer), 5) as raw,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(raw, server_hostname="node-1")


def _place(peer: Peer) -> tuple[str, int]:
    host, _, port = peer.transport.address.rpartition(":")
    return host, int(port)
