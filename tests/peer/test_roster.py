"""The roster: signed, canonical, and handed on when it changes."""

from dataclasses import replace
from pathlib import Path

import pytest

from basil.errors import UserError
from basil.peer.members import authority
from basil.peer.members.identity import load_identity
from basil.peer.members.roster import load_roster, save_roster

from peer_helpers import STAGE, Peer, make_ring, model, until


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("127.0.0.1", "10.6.6.6."),
        ("version = 1", "version = 9"),
        ("revoked = []", "revoked = [1]"),
        ("rounds = 80", "rounds = 81"),
        ("\n[[members]]", "\n\n[[members]]"),
    ],
)
def test_a_changed_roster_is_refused(tmp_path: Path, old: str, new: str) -> None:
    ring = make_ring(tmp_path / "ring", 2)
    text = (ring / "roster.toml").read_text()
    assert old in text
    (ring / "roster.toml").write_text(text.replace(old, new))
    with pytest.raises(UserError, match="the authority of this ring did not sign it"):
        load_roster(ring)


def test_the_roster_of_another_ring_is_refused(tmp_path: Path) -> None:
    ring, other = make_ring(tmp_path / "ring", 2), make_ring(tmp_path / "other", 2)
    save_roster(ring / "node-0", load_roster(other))
    with pytest.raises(UserError, match="did not sign it"):
        load_roster(ring / "node-0")


def test_every_part_of_a_roster_is_in_its_digest(tmp_path: Path) -> None:
    roster = load_roster(make_ring(tmp_path / "ring", 2))
    first = roster.members[0]
    others = [
        replace(roster, run="x"),
        replace(roster, version=2),
        replace(roster, revoked=(1,)),
        replace(roster, recipe=roster.recipe + "\n"),
        replace(roster, members=roster.members[:1]),
        *(
            replace(roster, members=(replace(first, **change), roster.members[1]))
            for change in (
                {"id": 5},
                {"address": "a:1"},
                {"public_key": bytes(32)},
                {"fingerprint": "0"},
            )
        ),
    ]
    assert len({roster.digest, *(other.digest for other in others)}) == 1 + len(others)


@pytest.mark.parametrize("recipe", ["a = 'x'''", "'", "a\r\n", "é\x00\x7f", "\n\n", "it's = 1\n"])
def test_any_recipe_survives_the_canonical_form(tmp_path: Path, recipe: str) -> None:
    ring = tmp_path / "ring"
    authority.init(ring, recipe, ["127.0.0.1:1", "127.0.0.1:2"])
    assert load_roster(ring).recipe == recipe


def test_a_node_that_is_revoked_or_has_other_keys_is_told_so_at_once(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "ring", 3)
    identity = load_identity(ring / "node-1")
    with pytest.raises(UserError, match="node 1 was revoked in roster 2"):
        authority.revoke(ring, 1).check(identity)
    roster = load_roster(ring)
    swapped = replace(roster.members[1], public_key=bytes(32))
    with pytest.raises(UserError, match="are not those of node 1"):
        replace(roster, revoked=(), members=(swapped,)).check(identity)
    with pytest.raises(UserError, match="node 1 is not in the roster"):
        replace(roster, members=roster.members[:1]).check(identity)


def test_revoke_and_add_raise_the_version_and_reach_every_folder(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "ring", 3)
    authority.revoke(ring, 2)
    member = authority.add(ring, "127.0.0.1:9999")
    assert member.id == 3
    for folder in (ring, *(ring / f"node-{i}" for i in range(4))):
        roster = load_roster(folder)
        assert (roster.version, roster.revoked, len(roster.members)) == (3, (2,), 4)
    assert "nodes = 4\n" in load_roster(ring).recipe
    with pytest.raises(UserError, match="node 2 is revoked already"):
        authority.revoke(ring, 2)
    with pytest.raises(UserError, match="node 7 is not in"):
        authority.revoke(ring, 7)


def test_a_new_roster_in_one_folder_reaches_the_others_over_the_network(tmp_path: Path) -> None:
    """The owner hands it to one machine; the rest hear of it, and keep it."""
    ring = make_ring(tmp_path / "ring", 4)
    elsewhere = {i: load_roster(ring / f"node-{i}") for i in range(4)}
    with Peer(ring, 0) as a, Peer(ring, 1) as b, Peer(ring, 2) as c, Peer(ring, 3) as d:
        newer = authority.revoke(ring, 3)
        for node in (1, 2, 3):  # as if those folders were on other machines
            save_roster(ring / f"node-{node}", elsewhere[node])
        assert until(lambda: all(p.transport.roster.version == 2 for p in (a, b, c)))
        assert until(lambda: load_roster(ring / "node-2").digest == newer.digest)
        d.transport.send((0, 1), STAGE, 1, model())
        assert d.transport.flush(10)
        assert a.refused(3)["revoked"] >= 1
        assert b.got == []
        a.transport.send((3,), STAGE, 1, model())
        a.transport.flush(5)
    assert a.transport.counters[3].sent == 0


def test_an_older_roster_or_one_of_another_run_is_not_taken_over(tmp_path: Path) -> None:
    ring, other = make_ring(tmp_path / "ring", 3), make_ring(tmp_path / "other", 3)
    old = load_roster(ring)
    authority.revoke(ring, 2)
    authority.revoke(other, 2)
    foreign = authority.revoke(other, 1)
    with Peer(ring, 0) as peer:
        assert not peer.transport.adopt(old)
        assert not peer.transport.adopt(foreign)
        assert peer.transport.roster.version == 2
