"""The receiving end of a transfer: who sends, what, may it, is it; then hand it on.

In this order, and nothing is done for a later step before an earlier one has passed: the caller's
certificate is that of a member; it has no other transfer under way; the manifest is well-formed and
signed by that member; size and layout are those of this run; the round is new; there is room for
the body; the body has the size and the digest that were signed, and finite values.
"""

import hashlib
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import WeakSet

import grpc
import numpy as np

from basil.host import host
from basil.peer.limits import CHUNK, Limits
from basil.peer.link.counters import Tallies
from basil.peer.link.guard import Guard, Places, Rate, Watched
from basil.peer.link.journal import Journal, Key
from basil.peer.link.rpc import status_of
from basil.peer.members.identity import parse_name
from basil.peer.members.roster import Roster
from basil.peer.messages.bodies import ABSENT, REJOIN, Digest, Forms, Refused
from basil.peer.messages.evidence import Evidence, Proof
from basil.peer.messages.manifest import Manifest, decode, signed_by_sender
from basil.protocol.requests import Body

TAKEN, KNOWN = b"taken", b"known"  # the two acknowledgements


@dataclass(frozen=True, eq=False)
class Message:
    """What arrived.  As long as the node holds on to it, it counts as waiting."""

    sender: int
    stage: str
    round: int
    body: Body
    time: float  # of the monotonic clock


class Reception:
    """All that this node takes in."""

    def __init__(
        self,
        roster: Callable[[], Roster],
        forms: Forms,
        limits: Limits,
        journal: Journal,
        evidence: Evidence,
        tallies: Tallies,
        guard: Guard,
        deliver: Callable[[Message], None],
    ) -> None:
        self.expected: Callable[[int, str, str], bool] = lambda sender, stage, kind: True
        self.early: Callable[[int, str, int], bool] = lambda sender, stage, round: False
        # Told of each call that is listened to: its context, and who calls.
        self.listens: Callable[[Any, int], None] = lambda context, sender: None
        self.recent: deque[Manifest] = deque(maxlen=256)  # to be compared with what others heard
        self._roster, self._forms, self._limits = roster, forms, limits
        self._journal, self._evidence, self._tallies = journal, evidence, tallies
        self._guard, self._deliver = guard, deliver
        self._active = Places(1)
        self._room = host.semaphore(limits.transfers or max(1, len(roster().members) - 1))
        self._begun = Rate(limits.messages, limits.messages_burst)
        self._notes = Rate(limits.notes, limits.notes_burst)
        self._handed_on: dict[Key, int] = {}  # the last round, in this process
        self._waiting: dict[tuple[int, str], WeakSet[Message]] = {}
        self._seen: dict[Key, dict[int, Manifest]] = {}  # by round, the oldest first

    def deliver(self, frames: Iterator[bytes], context: Any) -> bytes:
        """The gRPC method: a manifest, then chunks.  Answers with an acknowledgement."""
        sender: int | None = None
        try:
            sender = caller(context, self._roster())
            check_caller(sender, context, self._roster(), self._evidence)
            self.listens(context, sender)
            if not self._begun.allows(sender):
                raise Refused("rate", "too many transfers")
            with self._active.take(sender):
                return self._transfer(sender, frames, context)
        except Refused as refusal:
            reason, detail = refusal.reason, str(refusal)
        except grpc.RpcError:
            reason = detail = "cut off"
        # Out here: an exception that is still handled would keep the body alive, by its traceback.
        self._tallies.refuse(sender, reason)
        context.abort(status_of(reason), detail)
        raise AssertionError("abort raises")

    def compare(self, manifest: Manifest) -> None:
        """Somebody else was told this.  Does it contradict what this node was told?

        Only then is it looked at whether it is signed, which costs more.  If it is not, whoever
        passed it on made it up: `Refused`.
        """
        mine = self._heard(manifest)
        if mine is None or not mine.contradicts(manifest):
            return
        proven = mine.sender in self._evidence.excluded
        if not proven and not self._evidence.add(Proof(mine, manifest), self._roster()):
            raise Refused("signature", "not the sender's")

    # -- one transfer ------------------------------------------------------------------------

    def _transfer(self, sender: int, frames: Iterator[bytes], context: Any) -> bytes:
        limits = self._limits
        with self._guard.watch(context.cancel, limits.grace + limits.stall) as watched:
            try:
                manifest = decode(next(frames, b""))
                if not self._admit(sender, manifest):
                    self._tallies.add(sender, duplicates=1)
                    return KNOWN
                watched.deadline = host.monotonic() + limits.deadline(manifest.size)
                if not self._room.acquire(blocking=False):
                    raise Refused("memory", "too many bodies at once")
                try:
                    body = self._body(frames, manifest, watched)
                finally:
                    self._room.release()
            except (grpc.RpcError, Refused):
                if watched.ended:  # what is missing then looks like a truncated body
                    raise Refused("slow", "it did not move, or took too long") from None
                raise
        # Once more: meanwhile the node may have begun to train, or the sender be proven to lie.
        check_standing(sender, self._roster(), self._evidence)
        self._check_round(manifest)
        self._hand_on(manifest, body)
        self._tallies.add(sender, received=1, bytes_received=manifest.size)
        return TAKEN

    def _admit(self, sender: int, manifest: Manifest) -> bool:
        """Is this to be taken?  False: it is known already."""
        roster = self._roster()
        if manifest.sender != sender:
            raise Refused("sender", f"node {sender} sends for node {manifest.sender}")
        if manifest.run != roster.run:
            raise Refused("run", "another run")
        if not signed_by_sender(manifest, roster):
            raise Refused("signature", "not the sender's")
        self._forms.check(manifest.kind, manifest.size, manifest.layout)
        if not self.expected(sender, manifest.stage, manifest.kind):
            raise Refused("unexpected", f"nobody expects a {manifest.kind} of node {sender}")
        self._check_round(manifest)
        # A rejoin note asks for something, and may have to ask again.
        if manifest.kind != REJOIN and not self._is_new(manifest):
            return False
        if manifest.kind in (REJOIN, ABSENT) and not self._notes.allows(sender):
            raise Refused("rate", "too many notes")
        waiting = self._waiting.setdefault((sender, manifest.kind), WeakSet())
        if len(waiting) >= self._limits.waiting:
            raise Refused("waiting", "the node has not taken the last ones yet")
        stages = self._journal.stages(sender)
        if manifest.stage not in stages and len(stages) >= self._limits.stages:
            raise Refused("stage", "too many stages")
        return True

    def _check_round(self, manifest: Manifest) -> None:
        where = manifest.sender, manifest.stage, manifest.round
        if manifest.kind != REJOIN and self.early(*where):
            raise Refused("early", f"round {manifest.round} is too far ahead")

    def _is_new(self, manifest: Manifest) -> bool:
        """Rounds rise.  The last one again is a duplicate; with another content it is a lie."""
        last = self._journal.last.get(manifest.key)
        if last is None or manifest.round > last.round:
            return True
        same = self._heard(manifest)
        if same is not None and same.contradicts(manifest):
            self._evidence.add(Proof(same, manifest), self._roster())
            raise Refused("equivocation", f"another content for round {manifest.round}")
        if manifest.round < last.round:
            self._tallies.add(manifest.sender, late=1)
            raise Refused("late", f"round {manifest.round} after {last.round}")
        # What came before a restart may be lost with what the node had not yet worked on.
        return self._handed_on.get(manifest.key) != manifest.round

    def _heard(self, manifest: Manifest) -> Manifest | None:
        """What this node was told for the same place in the protocol."""
        last = self._journal.last.get(manifest.key)
        if last is not None and last.round == manifest.round:
            return last
        return self._seen.get(manifest.key, {}).get(manifest.round)

    def _body(self, frames: Iterator[bytes], manifest: Manifest, watched: Watched) -> Body:
        """Exactly as many bytes as were announced, in whole chunks, with the signed digest."""
        # Not a bytearray: that would be filled with zeros first.
        data, at, digest = np.empty(manifest.size, np.uint8).data, 0, Digest()
        for frame in frames:
            if not frame or len(frame) != min(CHUNK, manifest.size - at):
                raise Refused("frame", f"a chunk of {len(frame)} bytes after {at}")
            place = data[at : at + len(frame)]
            place[:] = frame
            digest.add([place])
            at += len(frame)
            watched.move()
        if at != manifest.size:
            raise Refused("truncated", f"{at} bytes of {manifest.size}")
        if digest.hexdigest() != manifest.sha256:
            raise Refused("digest", "the body is not what was signed")
        return self._forms.decode(manifest.kind, data)

    def _hand_on(self, manifest: Manifest, body: Body) -> None:
        """First on the disk, then to the node.  If either fails, the sender may try again."""
        at = host.monotonic()
        message = Message(manifest.sender, manifest.stage, manifest.round, body, at)
        try:
            if manifest.kind != REJOIN:
                self._mark(manifest)
            self._waiting.setdefault((manifest.sender, manifest.kind), WeakSet()).add(message)
            self._deliver(message)
        except OSError as error:
            raise Refused("disk", "this node cannot write down what it took") from error
        self._handed_on[manifest.key] = manifest.round

    def _mark(self, manifest: Manifest) -> None:
        if self._journal.last.get(manifest.key) != manifest:
            self._journal.put(manifest)
        seen = self._seen.setdefault(manifest.key, {})
        seen[manifest.round] = manifest
        if len(seen) > self._limits.compared:
            del seen[next(iter(seen))]
        self.recent.append(manifest)


def caller(context: Any, roster: Roster) -> int:
    """The member that the certificate names, which TLS has checked."""
    names = context.auth_context().get("x509_common_name", [])
    node = parse_name(names[0].decode(errors="replace")) if len(names) == 1 else None
    if node is None or roster.member(node) is None:
        raise Refused("unknown", "not a member of this ring")
    return node


def check_standing(node: int, roster: Roster, evidence: Evidence) -> None:
    """Is it still a member, and not proven to lie?"""
    if node in roster.revoked:
        raise Refused("revoked", f"node {node} was revoked in roster {roster.version}")
    if node in evidence.excluded:
        raise Refused("excluded", f"node {node} was proven to have said two different things")


def check_caller(
    node: int, context: Any, roster: Roster, evidence: Evidence, pinned: bool = True
) -> None:
    """May this member speak?  `pinned`: with this very certificate, which the roster names."""
    check_standing(node, roster, evidence)
    if pinned and not is_pinned(node, context, roster):
        raise Refused("certificate", f"not the one that the roster names for node {node}")


def is_pinned(node: int, context: Any, roster: Roster) -> bool:
    """Is the caller's certificate the very one that the roster names?"""
    member, certificates = roster.member(node), context.auth_context().get("x509_pem_cert", [])
    return member is not None and [_fingerprint(c) for c in certificates] == [member.fingerprint]


@lru_cache(maxsize=1024)
def _fingerprint(pem: bytes) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.decode("ascii", "replace"))).hexdigest()
