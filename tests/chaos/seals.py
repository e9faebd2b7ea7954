"""Signatures that take no time: like TLS, that nobody can forge them is taken as given."""

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from basil.peer.members import authority, identity
from basil.peer.members.roster import Member, Roster


class Seal:
    """In the place of both keys of a pair: in this world nobody seals with another's."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self._blank = raw, hashlib.blake2b(key=raw)

    def sign(self, content: bytes) -> bytes:
        seal = self._blank.copy()
        seal.update(content)
        return seal.digest()

    def verify(self, signature: bytes, content: bytes) -> None:
        if signature != self.sign(content):
            raise InvalidSignature

    def public_key(self) -> "Seal":
        return self

    def public_bytes(self, *form: Any) -> bytes:
        return self._raw


@contextmanager
def instead_of_keys() -> Iterator[None]:
    read, seal_of = identity.read_signing_key, cache(Seal)

    @cache
    def sealing(content: bytes, path: Path) -> Seal:
        return Seal(identity.raw_public_key(read(path)))

    with (
        # Of the certificates, which are others in every process.
        patch.object(Roster, "digest", property(lambda roster: f"{roster.version:064x}")),
        patch.object(identity, "read_signing_key", lambda path: sealing(path.read_bytes(), path)),
        patch.object(Member, "key", property(lambda member: seal_of(member.public_key))),
    ):
        yield


@contextmanager
def the_same_keys() -> Iterator[None]:
    """A night's name and signatures are the same in every process: a lie may hang on each bit."""
    numbers = count(1)

    class Key:
        @staticmethod
        def generate() -> Ed25519PrivateKey:
            return Ed25519PrivateKey.from_private_bytes(next(numbers).to_bytes(32))

    with (
        patch.object(authority, "Ed25519PrivateKey", Key),
        patch.object(secrets, "token_hex", lambda size: "0" * 2 * size),
    ):
        yield
