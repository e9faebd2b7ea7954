"""What a node finds on its disk of its own past: signed, so a change does not go unseen."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from basil.errors import UserError
from basil.peer.run.peer import Peer
from basil.peer.run.start import Options

from peer_helpers import Rogue, make_ring, model


def start(ring: Path) -> None:
    Peer(Options(ring / "node-0", device="cpu")).transport.stop()


@pytest.mark.parametrize("whose", [0, 1])
@pytest.mark.parametrize("change", [{"round": 2**50}, {"sha256": "0" * 64}, {"stage": "share"}])
def test_a_mark_that_was_changed_on_the_disk_is_said_at_the_start(
    tmp_path: Path, whose: int, change: dict[str, Any]
) -> None:
    """A round of the far future would have muted the node: it sends nothing that is older."""
    ring = make_ring(tmp_path / "ring", 3)
    marks = ring / "node-0/state/marks.jsonl"
    marks.parent.mkdir()
    lines = []
    for node in (0, 1):
        with Rogue(ring, node) as member:
            lines += [member.packed(k, model(k))[0] for k in (1, 2)]
    good = b"".join(line.encode() + b"\n" for line in lines)
    marks.write_bytes(good)
    start(ring)
    bad = [
        replace(line, **change) if line.sender == whose and line.round == 2 else line
        for line in lines
    ]
    marks.write_bytes(b"".join(line.encode() + b"\n" for line in bad))
    before = marks.read_bytes()
    with pytest.raises(UserError, match=rf"line {2 * whose + 2}: node {whose} did not sign this"):
        start(ring)
    assert marks.read_bytes() == before
    marks.write_bytes(good)
    start(ring)
