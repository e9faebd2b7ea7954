"""Members that lie, flood and fuzz: found out, or simply without effect."""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from basil.peer.link import rpc
from basil.peer.members.roster import load_roster
from basil.peer.messages.evidence import Proof, decode_proof
from basil.peer.messages.manifest import signed_by_sender

from hostile_http2 import PREFACE, call, frame, tls
from peer_helpers import (
    STAGE,
    Peer,
    Rogue,
    Victim,
    frames_of,
    make_ring,
    model,
    until,
)

MIB = 1 << 20


# -- equivocation ----------------------------------------------------------------------------


def test_two_models_for_one_round_are_a_proof_that_all_come_to_know(ring: Path) -> None:
    with Peer(ring, 1) as b, Peer(ring, 2) as c, Peer(ring, 3) as d, Rogue(ring, 0) as byzantine:
        one, other = byzantine.packed(5, model(1)), byzantine.packed(5, model(2))
        assert byzantine.deliver(1, frames_of(*one)) == "taken"
        assert "equivocation" in byzantine.deliver(1, frames_of(*other))
        assert until(lambda: all(p.transport.evidence.excluded == {0} for p in (b, c, d)))
        for peer in (b, c, d):
            (proof,) = peer.transport.evidence.proofs
            assert {proof.first, proof.second} == {one[0], other[0]}
            assert all(signed_by_sender(m, byzantine.roster) for m in (proof.first, proof.second))
            later = frames_of(*byzantine.packed(6, model(3)))
            node = peer.transport.identity.node
            assert byzantine.deliver(node, later).startswith("PERMISSION_DENIED excluded")
        assert b.rounds == [5]
        assert c.got == d.got == []
        c.transport.send((1, 3), STAGE, 1, model())  # the others go on
        assert c.transport.flush(10)
        assert d.rounds == [1]


def test_a_model_to_one_and_another_to_the_next_is_found_out(ring: Path) -> None:
    """Neither receiver has seen both; they compare what they heard."""
    with Peer(ring, 1) as b, Peer(ring, 2) as c, Rogue(ring, 0) as byzantine:
        assert byzantine.deliver(1, frames_of(*byzantine.packed(5, model(1)))) == "taken"
        assert byzantine.deliver(2, frames_of(*byzantine.packed(5, model(2)))) == "taken"
        assert until(lambda: b.transport.evidence.excluded == {0})
        assert until(lambda: c.transport.evidence.excluded == {0})


def test_an_exclusion_survives_a_restart_and_reaches_who_was_away(ring: Path) -> None:
    with Rogue(ring, 0) as byzantine:
        with Peer(ring, 1):
            byzantine.deliver(1, frames_of(*byzantine.packed(5, model(1))))
            byzantine.deliver(1, frames_of(*byzantine.packed(5, model(2))))
        with Peer(ring, 1) as b, Peer(ring, 3) as late:
            assert b.transport.evidence.excluded == {0}
            assert "excluded" in byzantine.deliver(1, frames_of(*byzantine.packed(6, model(1))))
            assert until(lambda: late.transport.evidence.excluded == {0})


def test_nobody_can_be_accused_of_what_it_did_not_sign(ring: Path) -> None:
    with Peer(ring, 1) as b, Rogue(ring, 0) as honest, Rogue(ring, 2) as slanderer:
        true, _ = honest.packed(5, model(1))
        again, _ = honest.packed(5, model(1))
        later, _ = honest.packed(6, model(2))
        stage, _ = honest.packed(5, model(2), "another stage")
        forged = slanderer.signed(true, sha256="0" * 64)
        mine, _ = slanderer.packed(5, model(2))
        for pair in ((true, again), (true, later), (true, stage), (true, forged), (true, mine)):
            assert not Proof(*pair).holds(honest.roster)
            assert not b.transport.evidence.add(Proof(*pair), honest.roster)
        assert b.transport.evidence.excluded == frozenset()
        assert Proof(true, honest.packed(5, model(3))[0]).holds(honest.roster)


def test_a_false_proof_over_the_network_is_refused_and_counted(ring: Path) -> None:
    with Peer(ring, 1) as b, Peer(ring, 2) as slanderer, Rogue(ring, 0) as honest:
        true, later = honest.packed(5, model(1))[0], honest.packed(6, model(2))[0]
        assert slanderer.transport.ask(1, "evidence", Proof(true, later).encode(), 5.0) is None
        assert slanderer.transport.ask(1, "evidence", b"nonsense", 5.0) is None
        assert slanderer.transport.ask(1, "seen", b"{}\n" * 65, 5.0) is None
        assert slanderer.transport.ask(1, "roster", b"{}", 5.0) is None
        assert b.refused(2) == {"evidence": 2, "frame": 1, "roster": 1}
        assert b.transport.evidence.excluded == frozenset()


def test_a_member_that_answers_with_rubbish_does_not_silence_the_others(ring: Path) -> None:
    with Peer(ring, 1) as b, Peer(ring, 2) as c, Peer(ring, 3) as rude, Rogue(ring, 0) as byzantine:
        asked = []

        def rubbish(sender: int, payload: bytes) -> bytes:
            asked.append(sender)
            return b"\xff" * 1000

        rude.transport.answers["roster"] = rubbish
        assert until(lambda: {1, 2} <= set(asked))
        byzantine.deliver(1, frames_of(*byzantine.packed(5, model(1))))
        byzantine.deliver(1, frames_of(*byzantine.packed(5, model(2))))
        assert until(lambda: c.transport.evidence.excluded == {0})
        assert b.transport._gossip._thread.is_alive()


def test_a_proof_is_two_lines_and_comes_back(ring: Path) -> None:
    with Rogue(ring, 0) as byzantine:
        proof = Proof(byzantine.packed(5, model(1))[0], byzantine.packed(5, model(2))[0])
    assert decode_proof(proof.encode()) == proof


# -- floods ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_flood_of_insiders_costs_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    """3 attackers × 10 connections × 4 streams: valid transfers, stalled ones, and rubbish."""
    values, S = 4 * MIB, 3  # a model of 16 MiB: two too many would show
    ring = make_ring(tmp_path / "ring", 5)
    rubbish = random.Random(0).randbytes(MIB)
    over = threading.Event()

    def attack(rogue: Rogue, number: int, method: grpc.StreamUnaryMultiCallable) -> None:
        k = 0
        while not over.is_set():
            k += 1
            manifest, data = packed[rogue.identity.node]
            manifest = rogue.signed(manifest, round=1000 * number + k)

            def frames(manifest: bytes = manifest.encode(), data: bytes = data) -> Iterator[bytes]:
                yield manifest if number % 4 else rubbish
                if number % 4 == 1:
                    over.wait(30)  # holds its place as long as it may
                for i in range(0, len(data), MIB):
                    yield data[i : i + MIB] if number % 4 == 2 else rubbish

            try:
                method(frames(), timeout=20)
            except (grpc.RpcError, ValueError):
                over.wait(0.02)

    with Victim(ring, 0, values) as victim, Rogue(ring, 4, values) as honest:
        rogues = [Rogue(ring, node, values) for node in (1, 2, 3)]
        packed = {r.identity.node: r.packed(1, model(1, values)) for r in rogues}
        threads: list[threading.Thread] = []
        for rogue in rogues:
            for _ in range(10):
                method = rogue.channel(0).stream_unary(rpc.DELIVER)
                for _ in range(4):
                    args = (rogue, len(threads), method)
                    threads.append(threading.Thread(target=attack, args=args, daemon=True))
        for thread in threads:
            thread.start()
        parcel = honest.packed(1, model(9, values))
        answers = []
        for k in range(1, 6):
            manifest = honest.signed(parcel[0], round=k)
            answers.append(honest.deliver(0, frames_of(manifest, parcel[1]), timeout=30))
            time.sleep(1)
        facts = victim.tell()
        over.set()
        for thread in threads:
            thread.join(30)
        for rogue in rogues:
            rogue.__exit__()
    assert answers == ["taken"] * 5
    refused = [sum(facts["refused"][str(node)].values()) for node in (1, 2, 3)]
    assert min(refused) > 50  # there was a flood
    assert facts["most"] - victim.at_rest < (S + 3) * 4 * values + 150e6
    assert facts["threads"] < 40


@pytest.mark.slow
def test_20000_fuzzed_frames_from_a_member_leave_the_node_as_it_was(ring: Path) -> None:
    """Raw HTTP/2 over a TLS connection with a valid certificate, many frames on each."""
    generator = random.Random(2)
    with Victim(ring, 1) as victim, Rogue(ring, 0) as fuzzer, Rogue(ring, 2) as honest:
        address = load_roster(ring).members[1].address
        before = victim.tell()
        sent = 0
        while sent < 20_000:
            with tls(ring / "node-0", address) as link:
                try:
                    link.sendall(PREFACE + frame(4, 0, 0, b""))
                    for _ in range(100):
                        link.sendall(_fuzzed(generator, fuzzer))
                        sent += 1
                except OSError:  # the victim hung up
                    sent += 1
        assert honest.deliver(1, frames_of(*honest.packed(1, model()))) == "taken"
        assert until(lambda: victim.tell()["files"] <= before["files"] + 10)
        assert until(lambda: victim.tell()["taken"] == [[2, 1]])
        facts = victim.tell()
    assert facts["most"] - victim.at_rest < 150e6
    assert facts["threads"] <= before["threads"] + 10


def _fuzzed(generator: random.Random, rogue: Rogue) -> bytes:
    """A frame that is nearly right, or not at all."""
    payload = generator.randbytes(generator.choice([0, 1, 4, 8, 5, 60, 3000]))
    match generator.randrange(5):
        case 0:
            return frame(generator.randrange(256), generator.randrange(256), 1, payload)
        case 1:
            stream = generator.choice([0, 1, 3, 2**31 - 1])
            return frame(generator.randrange(10), 0, stream, payload)
        case 2:  # headers of a call that is well-formed, then a body that is not
            begun = frame(1, 4, 2 * generator.randrange(1, 2**20) + 1, call(rpc.DELIVER))
            return begun + frame(0, 1, 1, b"\0" + len(payload).to_bytes(4, "big") + payload)
        case 3:  # a data frame that claims to be longer than it is
            return b"\xff\xff\xff" + frame(0, 0, 1, payload)[3:]
        case _:
            return payload


def test_fuzzed_calls_leave_the_node_as_it_was(ring: Path) -> None:
    """Through gRPC itself: manifests, bodies and questions with a few bytes changed."""
    generator = random.Random(3)
    with Peer(ring, 1) as peer, Rogue(ring, 0) as fuzzer, Rogue(ring, 2) as honest:
        deliver = fuzzer.channel(1).stream_unary(rpc.DELIVER)
        frames = frames_of(*fuzzer.packed(7, model()))
        refusals = 0
        for _ in range(300):
            changed = [bytearray(frame) for frame in frames]
            victim = generator.choice(changed)
            victim[generator.randrange(len(victim))] ^= 1 << generator.randrange(8)
            if generator.random() < 0.3:
                changed.insert(generator.randrange(3), bytearray(generator.randbytes(50)))
            try:
                deliver(iter([bytes(frame) for frame in changed]), timeout=10)
            except grpc.RpcError:
                refusals += 1
        assert refusals == 300
        assert peer.got == []
        assert sum(peer.refused(0).values()) == 300
        assert honest.deliver(1, frames_of(*honest.packed(1, model()))) == "taken"
        assert fuzzer.deliver(1, frames) == "taken"
