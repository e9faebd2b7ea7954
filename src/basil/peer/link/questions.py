"""Small signed questions and answers: digests, status, evidence, rosters.

A frame is a signature, one line of JSON and the payload, whose SHA-256 the line holds.  A question
names who asks, who is asked, what, and a number drawn at random; the answer names the question, so
that no answer can be taken for that to another one.
"""

import hashlib
import json
from typing import NamedTuple

from basil.peer.members.identity import Identity
from basil.peer.members.roster import Roster
from basil.peer.messages.bodies import Refused

CONTEXT = b"basil frame 1\n"
LINE = 1024  # bytes of the first line, at most

_FIELDS = ["run", "sender", "to", "what", "about", "sha256"]
_write = json.JSONEncoder(separators=(",", ":")).encode


class Frame(NamedTuple):
    """A question, or an answer (`about` is then the digest of the question)."""

    sender: int
    to: int
    what: str
    about: str
    payload: bytes


def encode(frame: Frame, identity: Identity, run: str) -> bytes:
    values = [run, frame.sender, frame.to, frame.what, frame.about, digest(frame.payload)]
    line = _write(dict(zip(_FIELDS, values, strict=True))).encode()
    return identity.signing.sign(CONTEXT + line) + line + b"\n" + frame.payload


def decode(data: bytes, roster: Roster, to: int) -> Frame:
    """A frame of this run to this node, signed by the member that it names; else `Refused`."""
    signature, rest = data[:64], data[64:]
    line, newline, payload = rest.partition(b"\n") if b"\n" in rest[:LINE] else (b"", b"", b"")
    try:
        tree = json.loads(line) if newline else None
    except (ValueError, RecursionError) as error:
        raise Refused("frame", "no JSON") from error
    if not isinstance(tree, dict) or list(tree) != _FIELDS:
        raise Refused("frame", "not its fields")
    texts = all(_is_word(tree[name]) for name in ("run", "what", "about", "sha256"))
    if not texts or type(tree["sender"]) is not int or type(tree["to"]) is not int:
        raise Refused("frame", "not of its types")
    if tree["run"] != roster.run or tree["to"] != to:
        raise Refused("frame", "for somebody else")
    if not roster.verify(tree["sender"], signature, CONTEXT + line):
        raise Refused("signature", "not the sender's")
    if digest(payload) != tree["sha256"]:
        raise Refused("digest", "the payload is not what was signed")
    return Frame(tree["sender"], tree["to"], tree["what"], tree["about"], payload)


def _is_word(value: object) -> bool:
    """Something that can be sent back, too: JSON can write what no other text can hold."""
    return isinstance(value, str) and value.isascii() and value.isprintable() and value != ""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
