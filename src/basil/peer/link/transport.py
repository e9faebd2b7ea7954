"""Messages between members, and nobody else: mutual TLS, signed manifests, bounds on everything.

transport = Transport(identity, roster, layout, Limits(), inbox.put, folder / "marks.jsonl")
transport.start()
transport.send((4, 5, 6), "train", 12, model)       # returns at once
transport.ask(4, "status", b"", timeout=2.0)        # None without an answer
transport.answers["status"] = lambda sender, payload: b"..."
transport.stop()
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from basil.errors import UserError
from basil.host import host
from basil.learning.layout import Layout
from basil.peer.limits import Limits
from basil.peer.link import questions, rpc
from basil.peer.link.counters import Tallies
from basil.peer.link.gossip import ROSTER, Gossip
from basil.peer.link.guard import Guard, Places, Rate
from basil.peer.link.journal import Journal
from basil.peer.link.outbox import Outbox, Parcel
from basil.peer.link.questions import Frame
from basil.peer.link.reception import Message, Reception, caller, check_caller, is_pinned
from basil.peer.members.identity import Identity
from basil.peer.members.roster import Roster, save_roster
from basil.peer.messages.bodies import REJOIN, Refused, RowForm, forms_of
from basil.peer.messages.evidence import Evidence
from basil.peer.messages.manifest import pack_chunks
from basil.protocol.requests import Body

EVIDENCE_FILE = "evidence.jsonl"
GUEST = -1  # all together whose certificate is not the one in the roster

Answer = Callable[[int, bytes], bytes]


class Transport:
    """This node's link to the others."""

    def __init__(
        self,
        identity: Identity,
        roster: Roster,
        layout: Layout,
        limits: Limits,
        deliver: Callable[[Message], None],
        journal: Path,
        *,
        rows: RowForm | None = None,
        listen: str | None = None,
        equivocates: bool = False,
    ) -> None:
        """`deliver` is called from the thread that received: what takes long belongs elsewhere.

        `listen`: host:port, if it is not the address in the roster.  `equivocates` is for drills:
        only with it will a node sign two different messages for one round.
        """
        me = roster.check(identity)
        self.identity, self.layout, self.limits, self.rows = identity, layout, limits, rows
        self.roster = roster
        self.counters = Tallies(tuple(m.id for m in roster.members if m.id != identity.node))
        self.answers: dict[str, Answer] = {}
        self._equivocates = equivocates
        self._journal = Journal(journal)
        self.address = listen or me.address
        self._network = host.network or rpc
        self._connections = self._network.connections(self.address, limits, len(roster.members))
        self._guard = Guard(limits.stall, self._connections.sweep)
        self.evidence = Evidence(
            journal.with_name(EVIDENCE_FILE), roster, lambda proof: self._gossip.tell(proof)
        )
        self._reception = Reception(
            lambda: self.roster,
            forms_of(layout, rows),
            limits,
            self._journal,
            self.evidence,
            self.counters,
            self._guard,
            deliver,
        )
        self._reception.listens = self._listens
        # (sender, stage, kind) -> may it come now?  Whatever else comes is refused.
        self.expected: Callable[[int, str, str], bool] = lambda sender, stage, kind: True
        self._reception.expected = lambda *what: self.expected(*what)
        # (sender, stage, round) -> is that further ahead than this node has use for?
        self.early: Callable[[int, str, int], bool] = lambda sender, stage, round: False
        self._reception.early = lambda *what: self.early(*what)
        ask = partial(self.ask, patient=False)
        self._gossip = Gossip(
            identity, lambda: self.roster, self.adopt, self.evidence, self._reception, ask
        )
        self.answers.update(self._gossip.answers)
        self._questions = Rate(limits.asks, limits.asks_burst)
        self._asking = Places(limits.asking)
        self._outboxes: dict[int, Outbox] = {}
        self._lock = host.lock()
        self._stopped = False
        self._server: grpc.Server | None = None

    def start(self) -> None:
        """Listen, and begin to tell others what they should know."""
        self._server = self._network.server(
            self.identity,
            self.address,
            self.limits,
            len(self.roster.members),
            self._reception.deliver,
            self._answer,
        )
        try:
            self._guard.start()
            self._server.start()
            self._gossip.start()
        except RuntimeError as error:
            raise UserError(
                f"this machine starts no more threads ({error}): end other programs, or raise the"
                " limit on processes, and start the node again"
            ) from error

    def stop(self) -> None:
        """End all; what has not been sent is dropped."""
        with self._lock:
            self._stopped = True
            outboxes = list(self._outboxes.values())
        for outbox in outboxes:
            outbox.close()
        self._gossip.stop()
        if self._server is not None:
            self._server.stop(grace=0).wait()
        self._guard.stop()
        self._journal.close()

    def flush(self, seconds: float) -> bool:
        """Wait until all is sent or given up; False if that takes longer."""
        until = host.monotonic() + seconds
        return all(outbox.flush(until) for outbox in list(self._outboxes.values()))

    def send(self, to: Sequence[int], stage: str, round: int, body: Body) -> bool:
        """Queue a message for each receiver.  False if this round was signed with another content.

        That can happen to an honest node that crashed between a send and its checkpoint.  What it
        signed first stands: a second version would be equivocation.
        """
        manifest, chunks = pack_chunks(
            body, stage, round, self.identity, self.roster, self.layout, self.rows
        )
        if manifest.kind != REJOIN and not self._equivocates:
            before = self._journal.last.get(manifest.key)
            if before is not None and manifest.round <= before.round:
                if manifest.round < before.round or before.contradicts(manifest):
                    return False
            else:
                self._journal.put(manifest)
        packed = Parcel(manifest, chunks, host.monotonic() + self.limits.give_up)
        for outbox in filter(None, map(self._outbox, to)):
            outbox.put(packed)
        return True

    def ask(
        self, node: int, what: str, payload: bytes, timeout: float, patient: bool = True
    ) -> bytes | None:
        """The answer of a member to a small question; None if there is none in time.

        `patient`: wait for a member that cannot be reached just now, while there is time.
        """
        outbox = self._outbox(node)
        if outbox is None:
            return None
        question = Frame(self.identity.node, node, what, host.random.randbytes(16).hex(), payload)
        data = questions.encode(question, self.identity, self.roster.run)
        try:
            answer = outbox.channel.unary_unary(rpc.ASK)(
                data, timeout=timeout, wait_for_ready=patient
            )
            frame = questions.decode(answer, self.roster, self.identity.node)
        except (grpc.RpcError, ValueError):  # ValueError: the channel was closed meanwhile
            return None
        except Refused as refusal:
            self.counters.refuse(node, refusal.reason)
            return None
        if frame.sender != node or frame.about != questions.digest(data):
            self.counters.refuse(node, "answer")
            return None
        return frame.payload

    def adopt(self, roster: Roster) -> bool:
        """Take over a roster that the authority signed, if it is newer and of this run."""
        with self._lock:
            if roster.run != self.roster.run or roster.version <= self.roster.version:
                return False
            before, now = ({m.id: m.address for m in r.members} for r in (self.roster, roster))
            stay = {n for n in roster.ids if before.get(n) == now[n]}
            gone = [self._outboxes.pop(node) for node in self._outboxes.keys() - stay]
            self.roster = roster
            with suppress(OSError):  # a full disk: it is heard of again after the next start
                save_roster(self.identity.folder, roster)
        for outbox in gone:
            outbox.close()
        return True

    def _outbox(self, node: int) -> Outbox | None:
        """Made when it is first needed.  None for a node that is no member, or after the end."""
        with self._lock:
            member = self.roster.member(node)
            if self._stopped or member is None or node in self.roster.revoked:
                return None
            if node not in self._outboxes:
                connect = partial(
                    self._network.channel, self.identity, node, member.address, self.limits
                )
                self._outboxes[node] = Outbox(
                    node, connect, self.limits, self.counters, self._guard
                )
            return self._outboxes[node]

    def _answer(self, frames: Iterator[bytes], context: Any) -> bytes:
        """The gRPC method: a signed question in, a signed answer out.

        Nothing is waited for before it is clear that the caller may ask, and has a place.
        """
        sender: int | None = None
        try:
            sender = caller(context, self.roster)
            check_caller(sender, context, self.roster, self.evidence, pinned=False)
            # An old certificate that somebody else has must not use up what its member may do.
            who = sender if is_pinned(sender, context, self.roster) else GUEST
            self._listens(context, who)
            if not self._questions.allows(who):
                raise Refused("rate", "too many questions")
            with self._asking.take(who):
                return self._reply(sender, self._question(frames, context), context)
        except Refused as refusal:
            self.counters.refuse(sender, refusal.reason)
            context.abort(rpc.status_of(refusal.reason), str(refusal))
        raise AssertionError("abort raises")

    def _listens(self, context: Any, node: int) -> None:
        self._connections.belongs(context.peer(), node)

    def _question(self, frames: Iterator[bytes], context: Any) -> bytes:
        """One message, in time, and not a large one."""
        with self._guard.watch(context.cancel, self.limits.grace) as watched:
            try:
                data = next(frames, b"")
            except grpc.RpcError:
                data = b""
        if watched.ended:
            raise Refused("slow", "the question did not come")
        if len(data) > self.limits.question:
            raise Refused("size", f"a question of {len(data)} bytes")
        return data

    def _reply(self, sender: int, data: bytes, context: Any) -> bytes:
        frame = questions.decode(data, self.roster, self.identity.node)
        if frame.sender != sender:
            raise Refused("sender", f"node {sender} asks for node {frame.sender}")
        if frame.what != ROSTER:  # which a renewed certificate must be able to bring
            check_caller(sender, context, self.roster, self.evidence)
        answer = self.answers.get(frame.what)
        if answer is None:
            raise Refused("no such question", frame.what[:64])
        self.counters.add(sender, questions=1)
        payload = answer(sender, frame.payload)
        reply = Frame(self.identity.node, sender, frame.what, questions.digest(data), payload)
        return questions.encode(reply, self.identity, self.roster.run)
