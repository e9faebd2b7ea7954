"""Proofs that a node said two different things: kept, checked by those who are told, acted upon.

A proof is a pair of manifests, both signed by one member, for the same stage, round and kind with
different contents.  Nobody can make one up about an honest node, so nobody has to be trusted to
believe it; and a node that is proven to lie is not listened to any more.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from basil.host import host
from basil.peer.members.files import write
from basil.peer.members.roster import Roster
from basil.peer.messages.bodies import Refused
from basil.peer.messages.manifest import Manifest, decode, read_manifests, signed_by_sender


@dataclass(frozen=True)
class Proof:
    """Two manifests that no honest node signs both."""

    first: Manifest
    second: Manifest

    @property
    def signer(self) -> int:
        return self.first.sender

    def holds(self, roster: Roster) -> bool:
        return self.first.contradicts(self.second) and all(
            signed_by_sender(manifest, roster) for manifest in (self.first, self.second)
        )

    def encode(self) -> bytes:
        """Two lines."""
        return self.first.encode() + b"\n" + self.second.encode() + b"\n"


def decode_proof(data: bytes) -> Proof:
    """The pair in two lines, or `Refused`.  Whether it proves anything is another question."""
    lines = data.split(b"\n")
    if len(lines) != 3 or lines[2]:
        raise Refused("evidence", "not two manifests")
    return Proof(decode(lines[0]), decode(lines[1]))


class Evidence:
    """The proofs that this node has, one for each signer, in a file across restarts."""

    def __init__(self, path: Path, roster: Roster, told: Callable[[Proof], None]) -> None:
        """`told` is called for each proof that is new."""
        self.path, self._told = path, told
        self._lock = host.lock()
        self._proofs: dict[int, Proof] = {}  # never changed, only replaced: it is read unlocked
        known = read_manifests(path)
        for proof in map(Proof, known[0::2], known[1::2]):
            if proof.holds(roster):
                self._proofs[proof.signer] = proof

    @property
    def excluded(self) -> frozenset[int]:
        """The signers that are proven to have lied."""
        return frozenset(self._proofs)

    @property
    def proofs(self) -> list[Proof]:
        return [proof for _, proof in sorted(self._proofs.items())]

    def add(self, proof: Proof, roster: Roster) -> bool:
        """Take a proof in, if it holds.  Was it one?  (One for each signer is kept.)"""
        if not proof.holds(roster):
            return False
        with self._lock:
            new = proof.signer not in self._proofs
            if new:
                self._proofs = {**self._proofs, proof.signer: proof}
                # A full disk makes no lie true: without the file the exclusion holds as long as
                # this process, and the others have the proof.
                with suppress(OSError):
                    write(self.path, b"".join(each.encode() for each in self._proofs.values()))
        if new:
            self._told(proof)
        return True
