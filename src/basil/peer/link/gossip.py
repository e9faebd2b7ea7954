"""What members tell each other beside the protocol: proofs, manifests they heard, newer rosters.

A node that sends one model to one node and another to the next is found out because receivers tell
a few others, picked at random, which manifests they were given.  All of it is checked by those who
are told; nothing is believed.
"""

import logging
from collections.abc import Callable
from contextlib import suppress

from basil.errors import UserError
from basil.host import host
from basil.peer.link.reception import Reception
from basil.peer.link.say import say
from basil.peer.members.identity import Identity
from basil.peer.members.roster import Roster, load_roster, parse
from basil.peer.messages.bodies import Refused
from basil.peer.messages.evidence import Evidence, Proof, decode_proof
from basil.peer.messages.manifest import decode

EVIDENCE, SEEN, ROSTER = "evidence", "seen", "roster"
BEAT = 0.2  # seconds between looks at what is to be told
COMPARE_EVERY, ROSTER_EVERY = 1.0, 5.0  # seconds
FANOUT = 3  # members that are told which manifests were heard, and asked for their roster
FIRST = 8  # members that are asked for their roster at the start
BATCH = 64  # manifests told at once
PATIENCE = 3.0  # seconds for an answer
RETRY = 5.0  # seconds before a member that did not answer is told again

Ask = Callable[[int, str, bytes, float], bytes | None]


class Gossip:
    """Tells, in a thread of its own, and answers what it is told."""

    def __init__(
        self,
        identity: Identity,
        roster: Callable[[], Roster],
        adopt: Callable[[Roster], bool],
        evidence: Evidence,
        reception: Reception,
        ask: Ask,
    ) -> None:
        self._identity, self._roster, self._adopt = identity, roster, adopt
        self._evidence, self._reception, self._ask = evidence, reception, ask
        self._untold: dict[tuple[int, int], float] = {}  # (member, signer) -> when to tell
        self._lock = host.lock()
        self._random = host.random
        self._over = host.event()
        self._thread = host.thread(target=self._run, name="basil-gossip", daemon=True)
        self.answers = {
            EVIDENCE: self._hear_proof,
            SEEN: self._hear_manifests,
            ROSTER: self._hear_roster,
        }

    def start(self) -> None:
        for proof in self._evidence.proofs:  # from before a restart
            self.tell(proof)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def tell(self, proof: Proof) -> None:
        """Everybody is to know, except the one that it is about."""
        with self._lock:
            for node in self._others():
                if node != proof.signer:
                    self._untold[node, proof.signer] = 0.0

    # -- telling -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._go_round()
            except Exception as error:  # what one beat could not do, a later one does
                say("cannot gossip", logging.WARNING, reason=str(error))
                self._over.wait(RETRY)

    def _go_round(self) -> None:
        compare_at = roster_at = host.monotonic()
        self._swap_roster(self._some(FIRST))
        while not self._over.wait(BEAT):
            self._tell_proofs()
            now = host.monotonic()
            if now >= compare_at:
                compare_at = now + COMPARE_EVERY
                self._look_for_roster()
                self._tell_manifests()
            if now >= roster_at:
                roster_at = now + ROSTER_EVERY
                self._swap_roster(self._some(FANOUT))

    def _tell_proofs(self) -> None:
        now = host.monotonic()
        with self._lock:
            due = [pair for pair, moment in self._untold.items() if moment <= now]
        proofs = {proof.signer: proof for proof in self._evidence.proofs}
        for node, signer in due:
            answer = self._ask(node, EVIDENCE, proofs[signer].encode(), PATIENCE)
            with self._lock:
                if answer is not None or node not in self._others():
                    self._untold.pop((node, signer), None)
                else:
                    self._untold[node, signer] = host.monotonic() + RETRY
            if self._over.is_set():
                return

    def _tell_manifests(self) -> None:
        recent = self._reception.recent
        batch = [recent.popleft() for _ in range(min(BATCH, len(recent)))]
        heard = False
        for node in self._some(FANOUT) if batch else ():
            news = [m.encode() for m in batch if m.sender != node]  # it knows what it said itself
            if news and self._ask(node, SEEN, b"\n".join(news), PATIENCE) is not None:
                heard = True
        if not heard:
            recent.extendleft(reversed(batch))

    def _look_for_roster(self) -> None:
        """The ring's owner may have put a newer one into this node's folder."""
        try:
            found = load_roster(self._identity.folder, self._roster())
        except UserError:  # being written just now
            return
        if self._adopt(found):
            self._swap_roster(self._others())

    def _swap_roster(self, nodes: list[int]) -> None:
        for node in nodes:
            answer = self._ask(node, ROSTER, self._roster().sealed, PATIENCE)
            with suppress(Refused):  # whatever a Byzantine node answers
                if answer:
                    self._take_roster(answer)
            if self._over.is_set():
                return

    # -- being told --------------------------------------------------------------------------

    def _hear_proof(self, sender: int, payload: bytes) -> bytes:
        if not self._evidence.add(decode_proof(payload), self._roster()):
            raise Refused("evidence", "it proves nothing")
        return b"noted"

    def _hear_manifests(self, sender: int, payload: bytes) -> bytes:
        lines = payload.split(b"\n")
        if len(lines) > BATCH:
            raise Refused("frame", "too many manifests")
        for line in lines:
            self._reception.compare(decode(line))
        return b"compared"

    def _hear_roster(self, sender: int, payload: bytes) -> bytes:
        theirs = self._take_roster(payload)
        mine = self._roster()
        return mine.sealed if mine.version > theirs.version else b""

    def _take_roster(self, sealed: bytes) -> Roster:
        mine = self._roster()
        if sealed == mine.sealed:  # nearly always
            return mine
        try:
            theirs = parse(sealed, self._identity.authority, "a roster that was sent")
        except UserError as error:
            raise Refused("roster", str(error)) from error
        self._adopt(theirs)
        return theirs

    def _others(self) -> list[int]:
        silent = {self._identity.node, *self._evidence.excluded}
        return [node for node in self._roster().ids if node not in silent]

    def _some(self, count: int) -> list[int]:
        others = self._others()
        return self._random.sample(others, min(count, len(others)))
