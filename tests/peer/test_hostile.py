"""Strangers and members that break the rules: refused, counted, and nothing else happens."""

import ast
import re
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
import torch

import basil.peer
from basil.peer import authority, certificates, rpc
from basil.peer.bodies import forms_of
from basil.peer.chunks import cut, digest_of
from basil.peer.identity import load_identity
from basil.peer.limits import Limits
from basil.peer.roster import load_roster
from basil.protocol.requests import Absent, Rejoin

from peer_helpers import (
    QUICK,
    STAGE,
    VALUES,
    Peer,
    Rogue,
    frames_of,
    layout_for,
    make_ring,
    model,
    until,
)


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    return make_ring(tmp_path / "ring", 4)


@pytest.fixture
def peer(ring: Path) -> Iterator[Peer]:
    with Peer(ring, 1) as peer:
        yield peer
        # Whatever a test did: honest nodes still get through.
        with Rogue(ring, 2) as honest:
            assert honest.deliver(1, frames_of(*honest.packed(10**6, model()))) == "taken"


@pytest.fixture
def rogue(ring: Path, peer: Peer) -> Iterator[Rogue]:
    with Rogue(ring, 0) as rogue:
        yield rogue


# -- who -------------------------------------------------------------------------------------


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


# -- what ------------------------------------------------------------------------------------


def _change(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 4
    return bytes(changed)


def test_a_body_that_is_not_what_was_signed_is_refused(peer: Peer, rogue: Rogue) -> None:
    manifest, data = rogue.packed(1, model())
    wrong = {
        "digest": [_change(data, 0), _change(data, len(data) - 1), bytes(len(data))],
        "truncated": [b""],
        "frame": [data[:-1], data + b"\0", 2 * data],
    }
    for reason, bodies in wrong.items():
        for body in bodies:
            answer = rogue.deliver(1, frames_of(manifest, body))
            assert answer.startswith(f"INVALID_ARGUMENT {reason}"), reason
    extra = [*frames_of(manifest, data), b"more"]
    assert rogue.deliver(1, extra).startswith("INVALID_ARGUMENT frame")
    assert peer.got == []
    assert rogue.deliver(1, frames_of(manifest, data)) == "taken"


def test_small_chunks_and_empty_ones_are_refused(peer: Peer, rogue: Rogue) -> None:
    """A sender cannot keep a transfer alive with a byte now and then."""
    manifest, data = rogue.packed(1, model())
    assert "frame" in rogue.deliver(1, [manifest.encode(), data[:100], data[100:]])
    assert "frame" in rogue.deliver(1, [manifest.encode(), b"", data])
    assert "manifest" in rogue.deliver(1, [])
    assert "manifest" in rogue.deliver(1, [b"", manifest.encode(), data])
    assert peer.got == []


def test_what_is_announced_wrongly_is_refused_before_its_body(peer: Peer, rogue: Rogue) -> None:
    manifest, _ = rogue.packed(1, model())
    size = manifest.size
    changes = {
        "size": [{"size": size + 1}, {"size": size - 1}, {"size": 2**50}, {"size": 0}],
        "layout": [{"layout": "0" * 64}, {"layout": ""}, {"kind": "rejoin"}],
        "run": [{"run": "0" * 16}],
        "version": [{"version": 2}],
        "manifest": [{"kind": "pickle"}, {"stage": "a\nb"}, {"stage": ""}, {"round": 2**60}],
    }
    for reason, variants in changes.items():
        for change in variants:
            # There is no body: if the receiver waited for one, it would say "truncated".
            answer = rogue.deliver(1, [rogue.signed(manifest, **change).encode()])
            assert answer.startswith(f"INVALID_ARGUMENT {reason}"), (change, answer)
    unsigned = rogue.signed(manifest)
    object.__setattr__(unsigned, "signature", "0" * 128)
    assert rogue.deliver(1, [unsigned.encode()]).startswith("INVALID_ARGUMENT signature")
    assert peer.got == []


def test_baskets_are_refused_where_none_are_shared(peer: Peer, rogue: Rogue) -> None:
    manifest, _ = rogue.packed(1, Absent(2))
    basket = rogue.signed(manifest, kind="basket", size=10**9)
    assert rogue.deliver(1, [basket.encode()]).startswith("INVALID_ARGUMENT size")


def test_values_that_are_not_finite_are_refused(peer: Peer, rogue: Rogue) -> None:
    bad = model()
    bad[7] = torch.nan
    assert "not finite" in rogue.deliver(1, frames_of(*rogue.packed(1, bad)))
    assert peer.got == []
    assert peer.refused(0) == {"not finite": 1}


def test_a_hostile_header_is_refused(peer: Peer, rogue: Rogue) -> None:
    forms = forms_of(layout_for(VALUES))
    giant = (99 << 20).to_bytes(8, "little") + b"{" * (forms.model_size - 8)
    manifest, _ = rogue.packed(1, model())
    signed = rogue.signed(manifest, sha256=digest_of(cut([giant])))
    assert rogue.deliver(1, frames_of(signed, giant)).startswith("INVALID_ARGUMENT header")
    assert peer.got == []


def test_a_message_larger_than_a_chunk_is_cut_off_by_grpc(peer: Peer, rogue: Rogue) -> None:
    member = rogue.roster.member(1)
    assert member is not None
    unlimited = grpc.secure_channel(
        member.address,
        grpc.ssl_channel_credentials(
            certificates.pem_of(rogue.identity.authority),
            certificates.pem_of_key(rogue.identity.key),
            certificates.pem_of(rogue.identity.certificate),
        ),
        [("grpc.ssl_target_name_override", "node-1"), ("grpc.max_send_message_length", -1)],
    )
    with unlimited, pytest.raises(grpc.RpcError) as caught:
        unlimited.stream_unary(rpc.DELIVER)(iter([bytes(3 << 20)]), timeout=10)
    assert caught.value.code() in (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
    )
    assert peer.got == []


# -- how much --------------------------------------------------------------------------------


def test_one_transfer_at_a_time(peer: Peer, rogue: Rogue) -> None:
    manifest, data = rogue.packed(1, model())
    begun, go_on = threading.Event(), threading.Event()

    def slowly() -> Iterator[bytes]:
        yield manifest.encode()
        begun.set()
        go_on.wait(10)
        yield data

    answers: list[str] = []
    first = threading.Thread(target=lambda: answers.append(rogue.deliver(1, slowly())))
    first.start()
    assert begun.wait(5)
    assert until(lambda: 0 in peer.transport._reception._active)
    second = frames_of(*rogue.packed(2, model(2)))
    assert rogue.deliver(1, second).startswith("RESOURCE_EXHAUSTED busy")
    go_on.set()
    first.join()
    assert answers == ["taken"]
    assert rogue.deliver(1, second) == "taken"


def test_notes_stages_and_questions_are_limited(ring: Path, peer: Peer, rogue: Rogue) -> None:
    notes = [rogue.deliver(1, frames_of(*rogue.packed(1, Rejoin()))) for _ in range(15)]
    assert notes[:10] == ["taken"] * 10
    assert notes[-1].startswith("RESOURCE_EXHAUSTED rate")
    stages = [
        rogue.deliver(1, frames_of(*rogue.packed(1, model(), f"stage {i}"))) for i in range(65)
    ]
    assert stages == ["taken"] * 64 + [stages[-1]]
    assert stages[-1].startswith("INVALID_ARGUMENT stage")
    ask = rogue.channel(1).unary_unary(rpc.ASK)
    details = []
    for _ in range(100):
        with pytest.raises(grpc.RpcError) as caught:
            ask(b"nonsense", timeout=5)
        details.append(caught.value.details())
    assert details[0].startswith("frame")
    assert details[-1].startswith("rate")
    with pytest.raises(grpc.RpcError, match=r"size|rate"):
        ask(bytes(QUICK.question + 1), timeout=5)


def test_a_member_that_begins_too_many_transfers_is_not_even_read(ring: Path) -> None:
    limits = replace(QUICK, messages=1.0, messages_burst=5)
    with Peer(ring, 1, limits) as peer, Rogue(ring, 0) as rogue, Rogue(ring, 2) as honest:
        answers = [rogue.deliver(1, [b"nonsense"]) for _ in range(8)]
        assert all(answer.startswith("INVALID_ARGUMENT manifest") for answer in answers[:5])
        assert answers[-1].startswith("RESOURCE_EXHAUSTED rate")
        assert honest.deliver(1, frames_of(*honest.packed(1, model()))) == "taken"
        assert peer.refused(0)["manifest"] < 8


def test_answers_and_questions_of_others_are_not_taken_for_ones_own(ring: Path) -> None:
    from basil.peer import questions

    with Peer(ring, 0) as a, Peer(ring, 1) as b, Rogue(ring, 2) as rogue:
        b.transport.answers["who"] = lambda sender, payload: b"%d" % sender
        data = questions.encode(
            questions.Frame(0, 1, "who", "x", b""), a.transport.identity, rogue.roster.run
        )
        with pytest.raises(grpc.RpcError, match="sender"):  # overheard, and put again
            rogue.channel(1).unary_unary(rpc.ASK)(data, timeout=5)
        forged = questions.encode(
            questions.Frame(0, 1, "who", "x", b""), rogue.identity, rogue.roster.run
        )
        with pytest.raises(grpc.RpcError, match="signature"):
            rogue.channel(1).unary_unary(rpc.ASK)(forged, timeout=5)
        assert until(lambda: a.transport.ask(1, "who", b"", 5.0) == b"0")
        # An answer to another question, signed by the right node, is no answer to this one.
        old = questions.encode(
            questions.Frame(1, 0, "who", "another question", b"9"),
            b.transport.identity,
            rogue.roster.run,
        )
        b.transport._answer = None  # type: ignore[assignment,method-assign]
        channel = a.transport._outbox(1)
        assert channel is not None
        channel.channel = _Fixed(old)  # type: ignore[assignment]
        assert a.transport.ask(1, "who", b"", 5.0) is None
        assert a.refused(1) == {"answer": 1}
        channel.channel = _Fixed(_change(old, 70))  # type: ignore[assignment]
        assert a.transport.ask(1, "who", b"", 5.0) is None


class _Fixed:
    """A channel whose other end says the same to everything."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def unary_unary(self, method: str):  # type: ignore[no-untyped-def]
        return lambda data, timeout, wait_for_ready: self._answer

    def close(self) -> None: ...


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


# -- the text itself -------------------------------------------------------------------------

FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "system", "popen", "execv", "spawnv"}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}


def test_nothing_on_the_path_unpickles_evaluates_or_calls_a_shell() -> None:
    sources = sorted(Path(basil.peer.__file__).parent.glob("*.py"))
    assert len(sources) > 10
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text())):
            where = f"{source.name}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
                assert not names & FORBIDDEN_MODULES, where
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in FORBIDDEN_MODULES, where
            elif isinstance(node, ast.Call):
                called = node.func
                name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
                home = getattr(getattr(called, "value", None), "id", "")
                if (home, name) != ("re", "compile"):
                    assert name not in FORBIDDEN_CALLS, where
                assert (home, name) not in {("torch", "load"), ("np", "load")}, where
                shell = [k.value for k in node.keywords if k.arg == "shell"]
                assert all(isinstance(v, ast.Constant) and v.value is False for v in shell), where


def test_nothing_but_certificates_looks_at_the_date() -> None:
    """So a clock that is wrong or set back changes nothing between peers."""
    path = Path(basil.peer.__file__).parent
    for name in ("transport", "reception", "outbox", "guard", "gossip", "marks", "evidence"):
        text = (path / f"{name}.py").read_text()
        assert "datetime" not in text
        assert set(re.findall(r"\btime\.(\w+)\(", text)) <= {"monotonic"}


def test_there_is_no_way_to_speak_without_tls() -> None:
    for source in Path(basil.peer.__file__).parent.glob("*.py"):
        assert not re.search(r"insecure|CERT_NONE|check_hostname *= *False", source.read_text())


def test_a_folder_without_certificates_is_fatal(ring: Path) -> None:
    (ring / "node-0" / "ca.crt").unlink()
    with pytest.raises(Exception, match=r"ca.crt cannot be read"):
        Peer(ring, 0)


def test_certificates_are_backdated_a_little_for_clocks_that_differ(ring: Path) -> None:
    certificate = load_identity(ring / "node-0").certificate
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == timedelta(
        days=90, minutes=5
    )
