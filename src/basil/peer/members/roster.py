"""Who takes part: ids, addresses, public keys and the recipe, signed by the ring's authority.

Every node holds the same roster and compares its digest with the others' before the first turn.  A
change raises the version; a node that sees a newer one with a valid signature takes it over.
"""

import hashlib
import json
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from basil.errors import UserError
from basil.peer.members.files import read, write
from basil.peer.members.identity import AUTHORITY, Identity, read_certificate

ROSTER = "roster.toml"
SIGNED = b"# signature "  # begins the last line of the file
CONTEXT = b"basil roster 1\n"  # so that this signature can be taken for nothing else


@dataclass(frozen=True)
class Member:
    """One node, as the others know it."""

    id: int
    address: str  # host:port
    public_key: bytes  # Ed25519, raw
    fingerprint: str  # SHA-256 of its certificate

    @cached_property
    def key(self) -> Ed25519PublicKey:
        """ValueError if these bytes are none."""
        return Ed25519PublicKey.from_public_bytes(self.public_key)


@dataclass(frozen=True)
class Roster:
    """All members of a run.  The revoked ones keep their place, and are not listened to."""

    run: str
    version: int
    members: tuple[Member, ...]
    revoked: tuple[int, ...]
    recipe: str  # TOML
    signature: bytes = field(default=b"", compare=False, repr=False)

    @cached_property
    def text(self) -> str:
        """The canonical form: what is signed, stored and compared."""
        lines = [
            f"run = {_quoted(self.run)}",
            f"version = {self.version}",
            f"revoked = {json.dumps(list(self.revoked))}",
            f"recipe = {_long(self.recipe)}",
        ]
        for member in self.members:
            lines += [
                "\n[[members]]",
                f"id = {member.id}",
                f"address = {_quoted(member.address)}",
                f"public_key = {_quoted(member.public_key.hex())}",
                f"fingerprint = {_quoted(member.fingerprint)}",
            ]
        return "\n".join(lines) + "\n"

    @cached_property
    def sealed(self) -> bytes:
        """Text and signature, as they are stored and sent."""
        return self.text.encode() + SIGNED + self.signature.hex().encode() + b"\n"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical form."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """Of all that may speak."""
        return tuple(m.id for m in self.members if m.id not in self.revoked)

    @cached_property
    def _by_id(self) -> dict[int, Member]:
        return {member.id: member for member in self.members}

    def member(self, node: int) -> Member | None:
        return self._by_id.get(node)

    def verify(self, node: int, signature: bytes, content: bytes) -> bool:
        """Did this member, revoked or not, sign that?"""
        member = self.member(node)
        if member is None:
            return False
        try:
            member.key.verify(signature, content)
        except (InvalidSignature, ValueError):
            return False
        return True

    def check(self, identity: Identity) -> Member:
        """Which member is this identity?  If none, one sentence."""
        member, where = self.member(identity.node), identity.folder
        if member is None:
            raise UserError(f"{where}: node {identity.node} is not in the roster of this ring")
        if identity.node in self.revoked:
            raise UserError(f"{where}: node {identity.node} was revoked in roster {self.version}")
        if (member.public_key, member.fingerprint) != (identity.public_key, identity.fingerprint):
            raise UserError(
                f"{where}: keys and certificate are not those of node {identity.node} in the"
                " roster: has the certificate been renewed without the new roster?"
            )
        return member


def sign(roster: Roster, key: ec.EllipticCurvePrivateKey) -> bytes:
    """The authority's signature."""
    return key.sign(CONTEXT + roster.text.encode(), ec.ECDSA(hashes.SHA256()))


def load_roster(folder: Path, known: Roster | None = None) -> Roster:
    """The roster in a folder, if the ring's authority signed it.  `known` is not checked again."""
    sealed = read(folder / ROSTER)
    if known is not None and sealed == known.sealed:
        return known
    return parse(sealed, read_certificate(folder / AUTHORITY), str(folder / ROSTER))


def save_roster(folder: Path, roster: Roster) -> None:
    """As one file, so that a crash leaves the old one or the new one."""
    write(folder / ROSTER, roster.sealed)


def recipe_of_run(roster: Roster, state: Path, authority: x509.Certificate) -> str:
    """What is run: the roster's recipe, or the one that a run began with which goes on.

    A roster may grow meanwhile; the order of a ring that turns stays.
    """
    kept = state / ROSTER
    return parse(read(kept), authority, str(kept)).recipe if kept.exists() else roster.recipe


def parse(sealed: bytes, authority: x509.Certificate, source: str) -> Roster:
    """A roster from a file's content, if the authority signed it and its form is canonical."""
    text, _, last = sealed.rpartition(SIGNED)
    key = authority.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise UserError(f"{source}: the authority's key is not on P-256")
    try:
        signature = bytes.fromhex(last.decode("ascii").removesuffix("\n"))
        key.verify(signature, CONTEXT + text, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError) as error:
        raise UserError(f"{source}: the authority of this ring did not sign it") from error
    try:
        tree = tomllib.loads(text.decode())
        roster = Roster(
            run=str(tree["run"]),
            version=int(tree["version"]),
            members=tuple(
                Member(**{**member, "public_key": bytes.fromhex(member["public_key"])})
                for member in tree.get("members", [])
            ),
            revoked=tuple(int(node) for node in tree["revoked"]),
            recipe=str(tree["recipe"]),
            signature=signature,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{source} is not a roster: {error}") from error
    if len({m.id for m in roster.members}) < len(roster.members) or roster.text.encode() != text:
        raise UserError(f"{source} is not a roster in its canonical form")
    return roster


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")


def _long(text: str) -> str:
    """Over several lines, for people; the canonical form follows from the text alone."""
    plain = "'''" not in text and "\r" not in text and not text.endswith("'")
    printable = all(c in "\n\t" or c.isprintable() for c in text)
    return f"'''\n{text}'''" if plain and printable else _quoted(text)
