"""Members that break the rules of a message: refused, counted, and nothing else happens."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from basil.peer.link import rpc
from basil.peer.members import certificates
from basil.peer.messages.bodies import cut, digest_of, forms_of
from basil.protocol.requests import Absent, Rejoin

from peer_helpers import (
    QUICK,
    VALUES,
    Peer,
    Rogue,
    frames_of,
    layout_for,
    model,
    until,
)

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
    changes: dict[str, list[dict[str, Any]]] = {
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
    # The allowance grows with time, so on a busy machine the last of them may pass again.
    assert any(detail.startswith("rate") for detail in details)
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
    from basil.peer.link import questions

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
        channel.channel = _Fixed(old)
        assert a.transport.ask(1, "who", b"", 5.0) is None
        assert a.refused(1) == {"answer": 1}
        channel.channel = _Fixed(_change(old, 70))
        assert a.transport.ask(1, "who", b"", 5.0) is None


class _Fixed:
    """A channel whose other end says the same to everything."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def unary_unary(self, method: str) -> Callable[..., bytes]:
        return lambda data, timeout, wait_for_ready: self._answer

    def close(self) -> None: ...
