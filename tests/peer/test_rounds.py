"""What is taken, known, late or a lie: the receiving end against a literal twin of its rules."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basil.peer.limits import Limits
from basil.peer.link.counters import Tallies
from basil.peer.link.guard import Guard
from basil.peer.link.journal import Journal
from basil.peer.link.reception import Message, Reception
from basil.peer.members.certificates import name_of, pem_of
from basil.peer.messages.bodies import forms_of
from basil.peer.messages.evidence import Evidence

from peer_helpers import QUICK, Rogue, frames_of, layout_for, make_ring, model

VALUES = 8


class Aborted(Exception):
    """What gRPC raises when a call is refused."""


class Call:
    """The context of a call from a member."""

    def __init__(self, sender: Rogue) -> None:
        certificate = sender.identity.certificate
        name = name_of(sender.identity.node).encode()
        self._auth = {"x509_common_name": [name], "x509_pem_cert": [pem_of(certificate)]}

    def auth_context(self) -> dict[str, list[bytes]]:
        return self._auth

    def cancel(self) -> None: ...

    def abort(self, status: grpc.StatusCode, detail: str) -> None:
        raise Aborted(detail.partition(":")[0])


class Node:
    """A receiving end whose process can be restarted; its files stay."""

    def __init__(self, folder: Path, rogue: Rogue, limits: Limits) -> None:
        self._make: Any = lambda deliver: Reception(
            lambda: rogue.roster,
            forms_of(layout_for(VALUES)),
            limits,
            Journal(folder / "marks.jsonl"),
            Evidence(folder / "evidence.jsonl", rogue.roster, lambda proof: None),
            Tallies(),
            Guard(60.0),
            deliver,
        )
        self.restart()

    def restart(self) -> None:
        self.got: list[Message] = []
        self.reception: Reception = self._make(self.got.append)

    def deliver(self, sender: Rogue, frames: list[bytes]) -> str:
        """The acknowledgement, or the reason of the refusal."""
        try:
            return self.reception.deliver(iter(frames), Call(sender)).decode()
        except Aborted as refusal:
            return str(refusal)


@pytest.fixture(scope="module")
def rogues(tmp_path_factory: pytest.TempPathFactory) -> list[Rogue]:
    ring = make_ring(tmp_path_factory.mktemp("rounds") / "ring", 3)
    return [Rogue(ring, node, VALUES) for node in (0, 1)]


class Twin:
    """The rules as one would write them down: everything remembered, nothing saved."""

    def __init__(self) -> None:
        self.told: dict[tuple[int, str], dict[int, int]] = {}  # (sender, stage) -> round -> content
        self.handed_on: set[tuple[int, str, int]] = set()  # since the last restart
        self.heard: dict[tuple[int, str], set[int]] = {}  # the same: rounds
        self.byzantine: set[int] = set()

    def restart(self) -> None:
        self.handed_on.clear()
        self.heard.clear()

    def deliver(self, sender: int, stage: str, k: int, content: int) -> str:
        if sender in self.byzantine:
            return "excluded"
        told = self.told.setdefault((sender, stage), {})
        newest = max(told, default=0)
        # Of older rounds only what came since the restart can still be compared.
        known = k == newest or k in self.heard.get((sender, stage), set())
        if known and k in told and told[k] != content:
            self.byzantine.add(sender)
            return "equivocation"
        if k < newest:
            return "late"
        if (sender, stage, k) in self.handed_on:
            return "known"
        told[k] = content
        self.handed_on.add((sender, stage, k))
        self.heard.setdefault((sender, stage), set()).add(k)
        return "taken"


SEND = st.tuples(
    st.integers(0, 1), st.sampled_from(["train", "share"]), st.integers(1, 4), st.integers(0, 9)
)


@given(events=st.lists(st.one_of(SEND, st.just("restart")), max_size=25))
@settings(max_examples=30, deadline=None)
def test_whatever_members_send_in_whatever_order(
    rogues: list[Rogue], events: list[tuple[int, str, int, int] | str]
) -> None:
    """Contents are mostly alike (0 to 7 are one), so that lies do not end every sequence early."""
    twin = Twin()
    with TemporaryDirectory() as folder:
        node = Node(Path(folder), rogues[0], QUICK)
        for event in events:
            if isinstance(event, str):
                node.restart()
                twin.restart()
                continue
            sender, stage, k, draw = event
            content = max(0, draw - 7)
            rogue = rogues[sender]
            frames = frames_of(*rogue.packed(k, model(10 * k + content, VALUES), stage))
            expected = twin.deliver(sender, stage, k, content)
            assert node.deliver(rogue, frames) == expected
            if expected == "taken":
                assert (node.got[-1].sender, node.got[-1].round) == (sender, k)
        assert node.reception._evidence.excluded == twin.byzantine


def test_there_is_room_for_so_many_bodies_at_once_and_no_more(
    rogues: list[Rogue], tmp_path: Path
) -> None:
    """While one body is on its way, another sender is told to try again; then it gets through."""
    node = Node(tmp_path, rogues[0], Limits(transfers=1))
    first = frames_of(*rogues[0].packed(1, model(1, VALUES)))
    second = frames_of(*rogues[1].packed(1, model(2, VALUES)))
    answers = []

    def frames() -> Iterator[bytes]:
        yield first[0]
        answers.append(node.deliver(rogues[1], second))  # in the middle of the other's body
        yield first[1]

    answers.append(node.reception.deliver(frames(), Call(rogues[0])).decode())
    answers.append(node.deliver(rogues[1], second))
    assert answers == ["memory", "taken", "taken"]


def test_a_refusal_does_not_hold_on_to_the_body(rogues: list[Rogue], tmp_path: Path) -> None:
    """Every exit gives back its place: the next transfer finds the node as it was."""
    node = Node(tmp_path, rogues[0], Limits(transfers=1))
    manifest, body = rogues[0].packed(1, model(1, VALUES))
    for frames in ([manifest.encode()], [manifest.encode(), body[:-1]], [b"x"], [], [b"{}", body]):
        assert node.deliver(rogues[0], frames) in ("truncated", "frame", "manifest")
    assert node.deliver(rogues[0], frames_of(manifest, body)) == "taken"
    assert node.reception._active == {}
