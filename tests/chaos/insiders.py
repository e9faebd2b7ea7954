"""What a member that lies does with its messages: it has a certificate, and signs what it likes."""

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from basil.peer.link import questions, rpc
from basil.peer.link.gossip import EVIDENCE, SEEN
from basil.peer.link.questions import Frame
from basil.peer.members.identity import Identity
from basil.peer.messages.bodies import Refused
from basil.peer.messages.evidence import Proof
from basil.peer.messages.manifest import Manifest
from basil.peer.run.agreement import PHASES, Hello
from chaos.watch import decode
from chaos.wires import Call

OLD = 8  # messages that it keeps, to say them again
FLOOD = 40  # messages at once
FAR = (-2, -1, 1, 2, 5, 100, 2**40)  # rounds from where it is


class Insider:
    """Changes some of what a Byzantine node sends, asks and says of itself.

    `known`: what honest nodes have signed, all of which it is told.
    """

    def __init__(self, draw: Random, known: list[Manifest]) -> None:
        self._draw, self._known = draw, known
        self._before: list[list[bytes]] = []
        # A swarm: each night's Byzantine nodes have some of the tricks.
        self._tricks = [trick for trick in TRICKS if draw.random() < 0.5]
        self._questions = [trick for trick in QUESTIONS if draw.random() < 0.5]
        self._often = draw.choice([0.02, 0.2, 0.7])
        self._boasts = draw.random() < 0.5

    def says(self, call: Call) -> None:
        often = self._draw.random() < self._often
        if call.method == rpc.ASK:
            if often and self._questions:
                self._ask(call)
            return
        try:
            manifest = decode(call.frames[0])
        except Refused:
            return
        self._before = [*self._before[1 - OLD :], call.frames]
        if often and self._tricks:
            self._draw.choice(self._tricks)(self, call, manifest)

    def hello(self, honest: Callable[[], Hello]) -> Callable[[], Hello]:
        """What it says of itself."""

        def lie() -> Hello:
            hello = honest()
            if not self._boasts or self._draw.random() > self._often:
                return hello
            changes: list[dict[str, Any]] = [
                {"round": max(0, hello.round + self._draw.choice(FAR))},
                {"phase": self._draw.choice(PHASES)},
                {"digest": "0" * 64},
                {"turn": self._draw.choice([0.0, 3599.0])},
            ]
            return replace(hello, **self._draw.choice(changes))

        return lie

    # -- messages --------------------------------------------------------------------------------

    def _again(self, call: Call, manifest: Manifest) -> None:
        """An old message."""
        call.frames = self._draw.choice(self._before)

    def _other_round(self, call: Call, manifest: Manifest) -> None:
        """A number of the past, of the future, or of no time at all."""
        number = max(0, manifest.round + self._draw.choice(FAR))
        call.frames = [_signed(call.identity, manifest, round=number), *call.frames[1:]]

    def _unsigned(self, call: Call, manifest: Manifest) -> None:
        changed = replace(manifest, round=manifest.round + 1)
        call.frames = [changed.encode(), *call.frames[1:]]

    def _flipped(self, call: Call, manifest: Manifest) -> None:
        """A bit of the body."""
        body = bytearray(call.frames[-1])
        body[self._draw.randrange(len(body))] ^= 1 << self._draw.randrange(8)
        call.frames = [*call.frames[:-1], bytes(body)]

    def _short(self, call: Call, manifest: Manifest) -> None:
        last = call.frames[-1]
        call.frames = [*call.frames[:-1], last[: self._draw.randrange(len(last))]]

    def _other_size(self, call: Call, manifest: Manifest) -> None:
        size = self._draw.choice([0, manifest.size - 1, manifest.size + 1, 2**40])
        call.frames = [_signed(call.identity, manifest, size=size), *call.frames[1:]]

    def _other_sender(self, call: Call, manifest: Manifest) -> None:
        sender = self._draw.randrange(9)
        call.frames = [_signed(call.identity, manifest, sender=sender), *call.frames[1:]]

    def _garbage(self, call: Call, manifest: Manifest) -> None:
        call.frames = [self._draw.randbytes(self._draw.randrange(200)), *call.frames[1:]]

    def _flood(self, call: Call, manifest: Manifest) -> None:
        for ahead in range(1, FLOOD):
            signed = _signed(call.identity, manifest, round=manifest.round + ahead)
            replace(call, frames=[signed, *call.frames[1:]], waiting=[]).begin()

    # -- questions -------------------------------------------------------------------------------

    def _ask(self, call: Call) -> None:
        line, _, payload = call.frames[0][64:].partition(b"\n")
        tree = json.loads(line)
        what, payload = self._draw.choice(self._questions)(self, call, tree["what"], payload)
        frame = Frame(tree["sender"], tree["to"], what, tree["about"], payload)
        call.frames = [questions.encode(frame, call.identity, tree["run"])]

    def _accuse(self, call: Call, what: str, payload: bytes) -> tuple[str, bytes]:
        """An honest node, of what it has not signed."""
        if not self._known:
            return what, payload
        true = self._draw.choice(self._known)
        other = decode(_signed(call.identity, true, sha256=self._draw.randbytes(32).hex()))
        if self._draw.random() < 0.5:
            return SEEN, other.encode()
        # All of these it has signed, but for other rounds.
        alike = [manifest for manifest in self._known if manifest.key == true.key]
        second = self._draw.choice([other, self._draw.choice(alike)])
        return EVIDENCE, Proof(true, second).encode()

    def _noise(self, call: Call, what: str, payload: bytes) -> tuple[str, bytes]:
        content = bytearray(payload or b"?")
        content[self._draw.randrange(len(content))] ^= 1 << self._draw.randrange(8)
        return what, bytes(content)

    def _nothing(self, call: Call, what: str, payload: bytes) -> tuple[str, bytes]:
        return self._draw.choice([what, "?", SEEN, EVIDENCE]), b""


TRICKS = (
    Insider._again,
    Insider._other_round,
    Insider._unsigned,
    Insider._flipped,
    Insider._short,
    Insider._other_size,
    Insider._other_sender,
    Insider._garbage,
    Insider._flood,
)
QUESTIONS = (Insider._accuse, Insider._noise, Insider._nothing)


def _signed(identity: Identity, manifest: Manifest, **changes: Any) -> bytes:
    changed = replace(manifest, **changes, signature="")
    signature = identity.signing.sign(changed.signed_part).hex()
    return replace(changed, signature=signature).encode()
