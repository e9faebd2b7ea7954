"""What a member that lies does with its messages: it has a certificate, and signs what it likes."""

from dataclasses import replace
from random import Random
from typing import Any

from basil.peer.members.identity import Identity
from basil.peer.messages.bodies import Refused
from basil.peer.messages.manifest import Manifest, decode

OLD = 8  # messages that it keeps, to say them again


class Insider:
    """Changes some of what a Byzantine node sends."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._before: list[list[bytes]] = []
        # A swarm: each night's Byzantine nodes have some of the tricks.
        self._tricks = [trick for trick in TRICKS if draw.random() < 0.5]
        self._often = draw.choice([0.02, 0.2, 0.7])

    def says(self, identity: Identity, frames: list[bytes]) -> list[bytes]:
        try:
            manifest = decode(frames[0])
        except Refused:
            return frames
        self._before = [*self._before[1 - OLD :], frames]
        if not self._tricks or self._draw.random() > self._often:
            return frames
        trick = self._draw.choice(self._tricks)
        return trick(self, identity, manifest, frames)

    # -- tricks ----------------------------------------------------------------------------------

    def _again(self, _: Identity, manifest: Manifest, frames: list[bytes]) -> list[bytes]:
        """An old message."""
        return self._draw.choice(self._before)

    def _other_round(
        self, identity: Identity, manifest: Manifest, frames: list[bytes]
    ) -> list[bytes]:
        """A number of the past, of the future, or of no time at all."""
        step = self._draw.choice([-2, -1, 1, 2, 5, 100, 2**40])
        return [_signed(identity, manifest, round=max(0, manifest.round + step)), *frames[1:]]

    def _flipped(self, _: Identity, manifest: Manifest, frames: list[bytes]) -> list[bytes]:
        """A bit of the body."""
        body = bytearray(frames[-1])
        body[self._draw.randrange(len(body))] ^= 1 << self._draw.randrange(8)
        return [*frames[:-1], bytes(body)]

    def _short(self, _: Identity, manifest: Manifest, frames: list[bytes]) -> list[bytes]:
        return [*frames[:-1], frames[-1][: self._draw.randrange(len(frames[-1]))]]

    def _other_size(
        self, identity: Identity, manifest: Manifest, frames: list[bytes]
    ) -> list[bytes]:
        size = self._draw.choice([0, manifest.size - 1, manifest.size + 1, 2**40])
        return [_signed(identity, manifest, size=size), *frames[1:]]

    def _other_sender(
        self, identity: Identity, manifest: Manifest, frames: list[bytes]
    ) -> list[bytes]:
        return [_signed(identity, manifest, sender=self._draw.randrange(9)), *frames[1:]]

    def _garbage(self, _: Identity, manifest: Manifest, frames: list[bytes]) -> list[bytes]:
        return [self._draw.randbytes(self._draw.randrange(200)), *frames[1:]]


TRICKS = (
    Insider._again,
    Insider._other_round,
    Insider._flipped,
    Insider._short,
    Insider._other_size,
    Insider._other_sender,
    Insider._garbage,
)


def _signed(identity: Identity, manifest: Manifest, **changes: Any) -> bytes:
    changed = replace(manifest, **changes, signature="")
    signature = identity.signing.sign(changed.signed_part).hex()
    return replace(changed, signature=signature).encode()
