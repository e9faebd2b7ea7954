"""What must hold, whatever a night does: looked at each time that it could be broken.

The marks below are kept outside of the nodes, by somebody whose disk never fails.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from basil.peer.link import rpc
from basil.peer.link.reception import TAKEN
from basil.peer.messages import manifest as manifests
from basil.peer.messages.bodies import MODEL, REJOIN, Refused, cut, digest_of
from basil.peer.messages.manifest import Manifest, signed_by_sender
from basil.peer.run import agreement
from basil.peer.run.engine import LAGS
from basil.peer.run.peer import TRAIN, Peer
from basil.protocol.requests import Arrival
from chaos.wires import Call

Key = tuple[str, int, str]  # of a manifest

decode = lru_cache(1024)(manifests.decode)  # of one message it is asked again and again


class Watch:
    """Of the honest nodes of one night."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._signed: dict[tuple[Key, int], str] = {}
        self._left: dict[Key, int] = {}  # the latest round that an honest node has sent
        self._took: dict[tuple[int, Key], int] = {}  # and that a node has acknowledged
        self._handed: dict[tuple[int, Key], int] = {}  # and handed on, in this life
        self._given: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
        self._kept: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
        self.turned_back: set[int] = set()  # nodes whose disks have forgotten: they know no better
        self.cut: set[int] = set()  # nodes whose disks may lose what was not forced to them

    # -- on the wire ---------------------------------------------------------------------------

    def leaves(self, manifest: Manifest) -> None:
        """An honest node never signs two different bodies under one number."""
        if manifest.kind == REJOIN:  # a note may ask once more
            return
        key, k = manifest.key, manifest.round
        if self._signed.setdefault((key, k), manifest.sha256) != manifest.sha256:
            self._violated(f"node {manifest.sender} signed two bodies for round {k}")
        self._left[key] = max(k, self._left.get(key, 0))

    def took(self, node: int, call: Call) -> None:
        if call.method == rpc.DELIVER and call.answered == TAKEN:
            manifest = decode(call.frames[0])
            if manifest.kind != REJOIN:
                self._took[node, manifest.key] = manifest.round

    # -- in a node -----------------------------------------------------------------------------

    def begins(self, here: Peer) -> None:
        """A node was started, perhaps again."""
        node, reception = here.node, here.transport._reception
        for key in [key for key in self._handed if key[0] == node]:
            del self._handed[key]
        if node not in self.turned_back:
            self._remembers(here)
        hand_on, take, restore = reception._hand_on, here.inbox.take, here.inbox.restore
        put, prepare = here.inbox.put, here._prepare
        watched: Any = here
        watched.transport._reception._hand_on = partial(self._hand_on, here, hand_on)
        watched.inbox.take = partial(self._take, node, take)
        watched.inbox.put = partial(self._put, here, put)
        watched.inbox.restore = partial(self._restore, here, restore)
        watched._prepare = partial(self._prepare, here, prepare)

    def _remembers(self, here: Peer) -> None:
        """What left, and what was acknowledged, is on the disk before."""
        marks = here.transport._journal.last
        mine = {key: k for key, k in self._left.items() if key[1] == here.node}
        others = {key: k for (node, key), k in self._took.items() if node == here.node}
        for key, k in {**mine, **others}.items():
            if key not in marks or marks[key].round < k:
                self._violated(f"node {here.node} has forgotten round {k} of node {key[1]}")

    def _hand_on(self, here: Peer, hand_on: Any, manifest: Manifest, body: Any) -> None:
        """Only what its sender signed, whole, expected, new and in time reaches a node."""
        about = f"a {manifest.kind} of node {manifest.sender} for round {manifest.round}"
        transport, node = here.transport, here.node
        if not signed_by_sender(manifest, transport.roster):
            self._violated(f"node {node} took {about} that it did not sign")
        kind, parts = transport._reception._forms.encode(body)
        if (kind, digest_of(cut(parts))) != (manifest.kind, manifest.sha256):
            self._violated(f"node {node} took {about} that is not what was signed")
        if kind == MODEL and manifest.sender not in here._senders:
            self._violated(f"node {node} took {about}, who is no predecessor")
        if manifest.sender in transport.evidence.excluded:
            self._violated(f"node {node} took {about}, who is excluded")
        if kind == MODEL:
            self._in_time(here, manifest, about)
        self._given[node].add((manifest.sender, manifest.round))
        hand_on(manifest, body)
        self._handed[node, manifest.key] = manifest.round

    def _in_time(self, here: Peer, manifest: Manifest, about: str) -> None:
        engine, place = here.engine, (here.node, manifest.key)
        turning = engine if here._phase == agreement.TRAINING else None
        if turning is not None and here.rounds.of(manifest.round) > turning.round + LAGS:
            self._violated(f"node {here.node} took {about}, far ahead")
        if manifest.round <= self._handed.get(place, -1):
            self._violated(f"node {here.node} took {about} once more")
        if manifest.round < self._took.get(place, -1) and here.node not in self.turned_back:
            self._violated(f"node {here.node} took {about}, of the past")

    def _take(self, node: int, take: Any, until: float) -> Any:
        got = take(until)
        if isinstance(got, Arrival) and (got.sender, got.round) not in self._given[node]:
            self._violated(
                f"node {node} was given round {got.round} of {got.sender} out of nowhere"
            )
        return got

    # -- across a crash ------------------------------------------------------------------------

    def _put(self, here: Peer, put: Any, sender: int, k: int, body: Any, more: Any = None) -> None:
        put(sender, k, body, more)
        for number, arrival, _ in here.inbox._queue:
            if number in here.inbox._files:
                self._kept[here.node][number] = arrival.sender, arrival.round

    def _restore(self, here: Peer, restore: Any, mark: list[int]) -> None:
        """What was acknowledged is given to the protocol, if a checkpoint does not hold it yet."""
        restore(mark)
        newest, waiting = (mark[0], set(mark[1:])) if mark else (0, set[int]())
        queued = {number for number, *_ in here.inbox._queue}
        for number, (sender, k) in self._kept[here.node].items():
            due = number > newest or number in waiting
            if due and number not in queued and here.node not in self.cut | self.turned_back:
                self._violated(f"node {here.node} has lost round {k} of node {sender}")

    def _prepare(self, here: Peer, prepare: Any) -> Any:
        """What left is in a checkpoint: otherwise the same round would be trained once more."""
        recorder = prepare()
        left = self._left.get((TRAIN, here.node, MODEL))
        again = left is not None and here.rounds.of(left) >= recorder.engine.round
        if again and here.node not in self.turned_back:
            self._violated(f"node {here.node} sent round {left} before it was on its disk")
        return recorder

    # -- from time to time ---------------------------------------------------------------------

    def look(self, here: Peer, honest: set[int]) -> None:
        """No honest node is accused, and what others can make a node hold is bounded."""
        node, transport = here.node, here.transport
        for other in transport.evidence.excluded & (honest - self.turned_back):
            self._violated(f"honest node {other} was excluded by node {node}")
        limits = transport.limits
        # What a restart brought has no envelope; it is bounded by what may lie on the disk, below.
        waiting = Counter(a.sender for _, a, envelope in here.inbox._queue if envelope is not None)
        for sender, count in waiting.items():
            if count > 2 * limits.waiting:  # models and notes
                self._violated(f"node {node} holds {count} messages of node {sender}")
        for receiver, box in transport._outboxes.items():
            if len(box._queue) > 3 * limits.outbox:
                self._violated(f"node {node} keeps {len(box._queue)} messages for {receiver}")
        stored = Counter[int]()
        for sender, size in list(here.inbox._files.values()):
            stored[sender] += size
        for sender, size in stored.items():
            if size > here.inbox._most:
                self._violated(f"node {node} keeps {size} bytes of node {sender} on its disk")


def manifest_of(call: Call) -> Manifest | None:
    """What a message says it is, if it says something."""
    try:
        return decode(call.frames[0])
    except Refused:
        return None
