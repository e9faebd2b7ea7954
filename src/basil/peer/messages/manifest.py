"""A message: a signed manifest that says what follows, and the body.

The manifest comes first and is checked before a byte of the body is taken.  It is what a node can
be held to: two manifests of one sender for one round with different digests are a proof.  The
digest is signed, not the body, since Ed25519 takes five times as long as SHA-256.
"""

import json
import re
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path

from basil.errors import UserError
from basil.learning.layout import Layout
from basil.peer.limits import MANIFEST
from basil.peer.members.identity import Identity
from basil.peer.members.roster import Roster
from basil.peer.messages.bodies import KINDS, Chunk, Refused, RowForm, cut, digest_of, forms_of
from basil.protocol.requests import Body

VERSION = 1
LARGEST = 2**53  # of whole numbers on the wire
CONTEXT = b"basil manifest 1\n"  # so that this signature can be taken for nothing else

_WORD = re.compile(r"[A-Za-z0-9 ._/-]{1,64}\Z")


@dataclass(frozen=True)
class Manifest:
    """Version, run, place in the protocol, sender, and what the body must be."""

    version: int
    run: str
    stage: str
    round: int
    sender: int
    kind: str
    size: int
    layout: str  # fingerprint of what the body is made of; empty for notes
    sha256: str  # of the chunks' digests: see `bodies`
    signature: str = ""

    @property
    def key(self) -> tuple[str, int, str]:
        """Rounds rise within this."""
        return self.stage, self.sender, self.kind

    @cached_property
    def _unsigned(self) -> str:
        """The canonical form without a signature, which is the last field."""
        return _write({name: getattr(self, name) for name in _FIELDS[:-1]})[:-1]

    @property
    def signed_part(self) -> bytes:
        return CONTEXT + f'{self._unsigned},"signature":""}}'.encode()

    def encode(self) -> bytes:
        return f'{self._unsigned},"signature":{_write(self.signature)}}}'.encode()

    def contradicts(self, other: "Manifest") -> bool:
        """The same place in the protocol, another content: an honest node never signs both."""
        return (
            self.run == other.run
            and self.key == other.key
            and self.round == other.round
            and (self.sha256, self.size, self.layout) != (other.sha256, other.size, other.layout)
        )


@lru_cache(maxsize=512)
def decode(data: bytes) -> Manifest:
    """A manifest in its canonical form, or `Refused`.  Whether it is signed is another question.

    A node that has been sent one is told of it by others, too.
    """
    if len(data) > MANIFEST:
        raise Refused("manifest", f"{len(data)} bytes")
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refused("manifest", "no JSON") from error
    if not isinstance(tree, dict) or list(tree) != _FIELDS:
        raise Refused("manifest", "not its fields")
    for name in ("version", "round", "sender", "size"):
        if type(tree[name]) is not int or not 0 <= tree[name] <= LARGEST:
            raise Refused("manifest", f"{name} is no number")
    for name, form in _FORMS.items():
        if not isinstance(tree[name], str) or not form.match(tree[name]):
            raise Refused("manifest", f"{name} is not of its form")
    if tree["version"] != VERSION:
        raise Refused("version", f"{tree['version']}; this is {VERSION}")
    if tree["kind"] not in KINDS:
        raise Refused("manifest", "no such kind")
    manifest = Manifest(**tree)
    if manifest.encode() != data:
        raise Refused("manifest", "not in its canonical form")
    return manifest


def read_manifests(path: Path) -> list[Manifest]:
    """One in each line of a file of ours, if there is one; a last line may have been cut off."""
    found: list[Manifest] = []
    try:
        for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else ():
            found.append(decode(line))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except Refused as error:
        raise UserError(f"{path}, line {len(found) + 1}: {error}") from error
    return found


def signed_by_sender(manifest: Manifest, roster: Roster) -> bool:
    """For this run, by the member that it names?"""
    if manifest.run != roster.run:
        return False
    signature = bytes.fromhex(manifest.signature)
    return roster.verify(manifest.sender, signature, manifest.signed_part)


def pack_chunks(
    body: Body,
    stage: str,
    round: int,
    identity: Identity,
    roster: Roster,
    layout: Layout,
    rows: RowForm | None = None,
) -> tuple[Manifest, list[Chunk]]:
    """A signed manifest and the body, which is not copied."""
    forms = forms_of(layout, rows)
    kind, parts = forms.encode(body)
    chunks = cut(parts)
    manifest = Manifest(
        version=VERSION,
        run=roster.run,
        stage=stage,
        round=round,
        sender=identity.node,
        kind=kind,
        size=sum(map(len, parts)),
        layout=forms.fingerprints.get(kind, ""),
        sha256=digest_of(chunks),
    )
    signature = identity.signing.sign(manifest.signed_part)
    return replace(manifest, signature=signature.hex()), chunks


_write = json.JSONEncoder(separators=(",", ":")).encode

_FIELDS = [field.name for field in fields(Manifest)]
_FORMS = {
    "run": _WORD,
    "stage": _WORD,
    "kind": _WORD,
    "layout": re.compile(r"([0-9a-f]{64})?\Z"),
    "sha256": re.compile(r"[0-9a-f]{64}\Z"),
    "signature": re.compile(r"[0-9a-f]{128}\Z"),
}
