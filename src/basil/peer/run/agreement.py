"""Before the first turn: do all nodes mean the same run, and where does it stand?

Every node asks every other one, and tells about itself in the same breath.  What must be equal
(roster, recipe, others' code in it, ring order, network, x⁰, what dummies look like) is compared as
one digest.  There is no leader: a node starts when all others have answered with its own digest,
when it has waited for the missing ones long enough, or when it hears that the ring is already
turning.

That takes a quorum: a node that reaches fewer, before the first turn or later, waits for them and
then ends.  What it would train by itself is not the ring's.  Nor is what it would learn from
Byzantine nodes alone: as long as no more than b nodes are absent, those may be the Byzantine ones,
and one source (a predecessor, on a graph a neighbour) is enough; with more absent, honest ones are
cut off, and more than b sources have to be here.  A node that has finished counts as here.

A Byzantine node may claim any digest and any round.  So up to b nodes that differ are left out like
silent ones, and a node with more than b against it refuses to run; of the claimed rounds the b
highest are not believed.
"""

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sized
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from basil.errors import UserError
from basil.host import host
from basil.peer.link.say import say
from basil.peer.run.liveness import longest_honest

HELLO = "hello"
AGAIN = 0.2  # seconds between two questions to a node that has not answered
RARELY = 2.0  # and, in the end, to one that agrees: it says by itself when something has changed
ANSWER = 3.0  # seconds that an answer may take
SETTLES = 5.0  # seconds in which a new roster reaches everybody
JOINING, SHARING, TRAINING, DONE = "joining", "sharing", "training", "done"
PHASES = (JOINING, SHARING, TRAINING, DONE)
TELLS = 2.0  # seconds after which a node that waits for a quorum says so
LONGEST = 1024  # bytes that a node says about itself
HERE = 5.0  # seconds for which a node that has answered is taken to be here


class Alone(Exception):
    """Says who is missing, and what to do."""


@dataclass(frozen=True)
class Quorum:
    """How many nodes it takes to train, this one counted, and how long they are waited for."""

    needed: int
    seconds: float
    tell: Callable[[list[int]], None] = lambda missing: None  # that it waits, and for whom
    sources: frozenset[int] = frozenset()  # whose models this node takes in
    honest: int = 0  # so many of them are not all Byzantine


class Asking(Protocol):
    """What is needed of the transport."""

    def ask(self, node: int, what: str, payload: bytes, timeout: float) -> bytes | None: ...


@dataclass(frozen=True)
class Hello:
    """What a node says about itself."""

    digest: str
    phase: str
    round: int  # the latest that it has finished
    turn: float  # seconds that a turn takes on its machine

    def encode(self) -> bytes:
        return _encode(self)


@lru_cache(maxsize=64)  # many ask, and little changes
def _encode(hello: Hello) -> bytes:
    return json.dumps(vars(hello)).encode()


def decode(payload: bytes | None) -> Hello | None:
    """What a peer said, if it can be one: it may say anything."""
    return None if payload is None or len(payload) > LONGEST else _decode(payload)


@lru_cache(maxsize=256)  # most say the same again
def _decode(payload: bytes) -> Hello | None:
    try:
        tree: Any = json.loads(payload)
        hello = Hello(
            str(tree["digest"])[:64], tree["phase"], int(tree["round"]), float(tree["turn"])
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    sane = hello.phase in PHASES and 0 <= hello.round < 2**53 and 0 <= hello.turn < 3600
    return hello if sane else None


@dataclass
class Agreement:
    """What came of it."""

    hellos: dict[int, Hello] = field(default_factory=dict)
    missing: frozenset[int] = frozenset()
    differing: frozenset[int] = frozenset()

    def round(self, byzantine: int) -> int:
        """The latest round that the ring has surely finished."""
        return int(longest_honest((hello.round for hello in self.hellos.values()), byzantine))

    def turning(self, byzantine: int) -> bool:
        """Has the training begun?  One honest node says so."""
        return sum(h.phase in (TRAINING, DONE) for h in self.hellos.values()) > byzantine

    def turn(self, own: float, byzantine: int) -> float:
        """The longest turn of an honest node, in seconds."""
        told = longest_honest((hello.turn for hello in self.hellos.values()), byzantine)
        return max(own, told)


class Handshake:
    """One node's part in the agreement; it answers others from the beginning to the end."""

    def __init__(
        self, node: int, others: Iterable[int], byzantine: int, about_me: Callable[[], Hello]
    ) -> None:
        self.node, self.byzantine, self.about_me = node, byzantine, about_me
        self.others = frozenset(others) - {node}
        self._said: dict[int, Hello] = {}  # the last that each has said,
        self._when: dict[int, float] = {}  # and when, on the monotonic clock
        self._silent: set[int] = set()  # who did not answer when last asked
        self._changed = host.condition()

    def answer(self, sender: int, payload: bytes) -> bytes:
        """To another node's question, which says as much as its answer would."""
        self._note(sender, decode(payload))
        return self.about_me().encode()

    def _note(self, sender: int, hello: Hello | None) -> None:
        with self._changed:
            if hello is None:
                self._silent.add(sender)
            elif sender in self.others:
                self._said[sender], self._when[sender] = hello, host.monotonic()
                self._silent.discard(sender)
            self._changed.notify_all()

    def _until(
        self, transport: Asking, over: Callable[[float], bool], stopped: Callable[[], bool]
    ) -> None:
        """Ask everybody again and again, each by a thread of its own, until it is over.

        `over` is told how many seconds it has taken.  Nobody waits for the last of these threads:
        one that asks a dead node takes seconds to end.
        """
        begin, ended = host.monotonic(), host.event()
        unasked = sorted(self.others)
        try:
            with self._changed:
                while not stopped():
                    self._start(transport, unasked, ended)
                    if over(host.monotonic() - begin):
                        break
                    self._changed.wait(AGAIN)
        finally:
            ended.set()

    def _start(self, transport: Asking, unasked: list[int], over: threading.Event) -> None:
        """A thread for each; on a crowded machine there may be none to be had for a while."""
        try:
            while unasked:
                work = (transport, unasked[0], over)
                host.thread(target=self._ask, args=work, daemon=True).start()
                del unasked[0]
        except RuntimeError as error:
            say("cannot ask", logging.WARNING, nodes=unasked, reason=str(error))

    def _ask(self, transport: Asking, node: int, over: threading.Event) -> None:
        pause = AGAIN
        while not over.is_set():
            mine = self.about_me()
            try:
                reply = decode(transport.ask(node, HELLO, mine.encode(), ANSWER))
            except Exception as error:  # this machine's fault: no answer, and another try
                say("cannot ask", logging.WARNING, node=node, reason=str(error))
                reply = None
            self._note(node, reply)
            agrees = reply is not None and reply.digest == mine.digest
            pause = min(RARELY, 2 * pause) if agrees else AGAIN
            over.wait(pause)

    def missing(self, since: float) -> list[int]:
        """Who has neither finished nor been heard from since that moment of the monotonic clock."""
        with self._changed:
            done = {node for node, hello in self._said.items() if hello.phase == DONE}
            here = {node for node, moment in self._when.items() if moment >= since}
            return sorted(self.others - done - here)

    def awaited(self, quorum: Quorum, since: float) -> list[int]:
        """Who is missing, if without them there are too few nodes or sources."""
        missing = self.missing(since)
        if len(self.others) + 1 - len(missing) < quorum.needed:
            return missing
        wanted = min(quorum.honest, 1) if len(missing) <= self.byzantine else quorum.honest
        absent = quorum.sources.intersection(missing)
        return sorted(absent) if len(quorum.sources) - len(absent) < wanted else []

    def gather(
        self,
        transport: Asking,
        quorum: Quorum,
        since: float = 0.0,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Ask until a quorum has been heard from since then.  `Alone` if that takes too long."""
        told = False

        def gathered(waited: float) -> bool:
            nonlocal told
            awaited = self.awaited(quorum, max(since, host.monotonic() - HERE))
            if awaited and waited >= quorum.seconds:
                raise Alone(self._alone(awaited, quorum))
            if awaited and waited >= TELLS and not told:
                told = True
                quorum.tell(awaited)
            return not awaited

        self._until(transport, gathered, stopped)

    def _alone(self, awaited: list[int], quorum: Quorum) -> str:
        names, members = ", ".join(map(str, awaited)), len(self.others) + 1
        here = members - len(awaited)
        why = (
            f"{here} of {members} are here, and it takes {quorum.needed} to train. Start it again"
            " when they are, or with a smaller --quorum"
        )
        if here >= quorum.needed:
            why = (
                "all others that it takes models from may be Byzantine. Start it again when they"
                f" are here, or with --quorum {quorum.needed}"
            )
        waited = f"node {self.node} has waited {quorum.seconds:g} s for {_nodes(awaited)} {names}"
        return f"{waited}: {why}"

    def agree(
        self, transport: Asking, window: float, stopped: Callable[[], bool] = lambda: False
    ) -> Agreement:
        """Ask until all have answered alike, or until it is no use to wait any longer."""
        self._until(transport, lambda waited: self._decided(waited, window), stopped)
        with self._changed:
            return self._judge(dict(self._said))

    def _decided(self, waited: float, window: float) -> bool:
        mine = self.about_me().digest
        same = {node: hello for node, hello in self._said.items() if hello.digest == mine}
        agreed = len(same) == len(self.others) or Agreement(same).turning(self.byzantine)
        hopeless = len(self._said) - len(same) > self.byzantine and waited > SETTLES
        return agreed or hopeless or waited > window

    def _judge(self, said: dict[int, Hello]) -> Agreement:
        mine = self.about_me().digest
        differing = frozenset(node for node, hello in said.items() if hello.digest != mine)
        if len(differing) > self.byzantine:
            names = ", ".join(map(str, sorted(differing)))
            raise UserError(
                f"node {self.node} does not agree with {_nodes(differing)} {names} on what is to be"
                " run: roster, recipe, the code it names, network or data differ; give all the same"
            )
        same = {node: hello for node, hello in said.items() if node not in differing}
        return Agreement(same, self.others - said.keys(), differing)

    def wait_for(
        self,
        transport: Asking,
        who: Collection[int],
        phases: Collection[str],
        window: float,
        stopped: Callable[[], bool],
    ) -> None:
        """Until all of these that answer are in one of the phases, or the window is over."""

        def ready(waited: float) -> bool:
            asked = [self._said[node] for node in who if node in self._said.keys() - self._silent]
            return waited >= window or all(hello.phase in phases for hello in asked)

        self._until(transport, ready, stopped)


def _nodes(some: Sized) -> str:
    return "node" if len(some) == 1 else "nodes"


def where_to_rejoin(next_round: int, finished: int) -> int | None:
    """In which round a node takes part again, if the ring has gone on without it (Appendix C).

    `next_round` is its own, `finished` the latest round that others have finished.  Only just late:
    in its own round, since a turn that is taken late does no harm.  Later: in the next that begins.
    """
    if finished < next_round:
        return None
    return next_round if finished == next_round else finished + 1
