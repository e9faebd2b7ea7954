"""Keys, certificates and the commands that make them."""

import json
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from basil.cli import main
from basil.errors import UserError
from basil.peer.members import authority, certificates
from basil.peer.members.identity import load_identity, parse_name
from basil.peer.members.roster import load_roster
from basil.recipe import Recipe
from basil.recipe import load as load_recipe

from peer_helpers import make_ring


def test_init_makes_a_folder_for_each_machine_with_all_that_it_needs(tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    assert main(["peers", "init", "--nodes", "8", "--dir", str(ring)]) == 0
    roster = load_roster(ring)
    assert [m.address for m in roster.members] == [f"127.0.0.1:{7400 + i}" for i in range(8)]
    for node in range(8):
        folder = ring / f"node-{node}"
        identity = load_identity(folder)
        assert identity.node == node
        load_roster(folder).check(identity)
        assert load_roster(folder).digest == roster.digest
        assert identity.certificate.not_valid_after_utc > datetime.now(UTC)
    recipe = _recipe(roster.recipe, tmp_path)
    assert recipe.ring.nodes == 8
    assert recipe.attack.name == "none"


def _recipe(text: str, tmp_path: Path) -> Recipe:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return load_recipe(path)


def test_private_keys_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "ring", 2)
    keys = [*ring.rglob("*.key")]
    assert len(keys) == 5  # the authority's, and two of each node
    assert all(stat.S_IMODE(key.stat().st_mode) == 0o600 for key in keys)
    key = ring / "node-0" / "signing.key"
    key.chmod(0o640)
    with pytest.raises(UserError, match=r"can be read by others: chmod 600"):
        load_identity(ring / "node-0")


def test_a_folder_holds_no_other_nodes_keys(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "ring", 2)
    mine = {file.name for file in (ring / "node-0").iterdir()}
    assert mine == {"tls.key", "signing.key", "tls.crt", "ca.crt", "roster.toml"}
    public = [f.read_text() for f in ring.rglob("*") if f.suffix in (".toml", ".crt")]
    assert not any(_secret(key) in text for key in ring.rglob("*.key") for text in public)


def _secret(key: Path) -> str:
    """The line of the file that holds the secret number; what follows may hold the public key."""
    return key.read_text().splitlines()[1]


def test_without_the_extra_there_is_one_sentence() -> None:
    program = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from basil.cli import main\n"
        "sys.exit(main(['peers', 'init', '--dir', 'nowhere']))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr == "basil: cryptography is missing: pip install 'basil-fl[peers]'\n"


def test_a_second_init_does_not_destroy_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = make_ring(tmp_path / "ring", 2)
    before = {file: file.read_bytes() for file in ring.rglob("*") if file.is_file()}
    assert main(["peers", "init", "--nodes", "3", "--dir", str(ring)]) == 2
    assert "holds a ring already" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in ring.rglob("*") if file.is_file()} == before


def test_a_recipe_sets_the_number_of_nodes_unless_told_otherwise(tmp_path: Path) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert main(["peers", "init", "--recipe", "demo", "--dir", one]) == 0
    assert len(load_roster(tmp_path / "one").members) == 20
    assert main(["peers", "init", "--recipe", "demo", "--nodes", "9", "--dir", two]) == 0
    assert len(load_roster(tmp_path / "two").members) == 9
    assert _recipe(load_roster(tmp_path / "two").recipe, tmp_path).ring.nodes == 9


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--nodes", "1"], "from 2 to 200"),
        (["--nodes", "3", "--port", "65535"], "need ports up to"),
        (["--nodes", "3", "--host", "a", "b"], "one for each of the 3 nodes"),
        (["--nodes", "2", "--host", "a b"], "is not an address"),
        (["--recipe", "demo", "--nodes", "5"], "ring"),  # b = 6 of 5
        (["-s", "seed=2"], "name one with --recipe"),
        (["--days", "0"], "--days 0: it must be more than 0"),
        (["--days", "nan"], "--days nan: it must be"),
        (["--days", "9999"], "1825 at most"),
    ],
)
def test_wrong_input_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    ring = tmp_path / "ring"
    assert main(["peers", "init", "--dir", str(ring), *options]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not ring.exists()


def test_hosts_one_for_each_node(tmp_path: Path) -> None:
    ring = str(tmp_path / "ring")
    hosts = ["a.example", "b.example", "10.0.0.3"]
    assert main(["peers", "init", "--nodes", "3", "--host", *hosts, "--dir", ring]) == 0
    addresses = [m.address for m in load_roster(Path(ring)).members]
    assert addresses == ["a.example:7400", "b.example:7400", "10.0.0.3:7400"]


def test_keys_made_on_the_machine_never_leave_it(tmp_path: Path) -> None:
    ring, machine = tmp_path / "ring", tmp_path / "machine"
    assert main(["peers", "init", "--nodes", "2", "--no-keys", "--dir", str(ring)]) == 0
    assert load_roster(ring).members == ()
    request = ["--dir", str(machine), "--node", "1", "--address", "10.0.0.1:7400"]
    assert main(["peers", "request", *request]) == 0
    handed_over = machine / "request.json"
    for key in machine.glob("*.key"):
        assert _secret(key) not in handed_over.read_text()
    assert main(["peers", "sign", "--dir", str(ring), str(handed_over)]) == 0
    answer = ring / "signed" / "node-1"
    assert {f.name for f in answer.iterdir()} == {"tls.crt", "ca.crt", "roster.toml"}
    assert list(ring.rglob("*.key")) == [ring / "ca" / "ca.key"]
    for file in answer.iterdir():
        (machine / file.name).write_bytes(file.read_bytes())
    identity, roster = load_identity(machine), load_roster(machine)
    roster.check(identity)
    assert roster.version == 2


def test_a_request_for_a_node_that_cannot_be_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = ["--dir", str(tmp_path / "m"), "--node", "-1", "--address", "10.0.0.1:7400"]
    assert main(["peers", "request", *request]) == 2
    assert capsys.readouterr().err == "basil: --node -1: it must be a whole number, 0 or more\n"
    assert not (tmp_path / "m").exists()


def test_a_request_that_was_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "ring", 2)
    path = authority.request(tmp_path / "machine", 5, "10.0.0.1:7400")
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "address": "10.6.6.6:7400"}))
    with pytest.raises(UserError, match="changed after it was made"):
        authority.sign(ring, path)


def test_nobody_gets_the_place_of_another_node(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "ring", 2)
    thief = authority.request(tmp_path / "thief", 1, "10.0.0.1:7400")
    with pytest.raises(UserError, match="another signing key"):
        authority.sign(ring, thief)
    taken = load_roster(ring).members[0].address
    with pytest.raises(UserError, match="is the address of node 0 already"):
        authority.sign(ring, authority.request(tmp_path / "new", 2, taken))


def test_a_member_gets_a_free_number_that_the_ring_can_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ring has a place for every number up to its largest: 10⁹ of them take all memory."""
    ring = make_ring(tmp_path / "ring", 3)
    before = load_roster(ring).digest
    for node in (4, 999_999_999):
        path = authority.request(tmp_path / f"machine-{node}", node, "10.0.0.1:7400")
        assert main(["peers", "sign", "--dir", str(ring), str(path)]) == 2
        sentence = f"node {node} has no place in a ring of 3: the next free number is 3"
        assert sentence in " ".join(capsys.readouterr().err.split())
    assert load_roster(ring).digest == before
    assert not (ring / "signed").exists()
    authority.sign(ring, authority.request(tmp_path / "machine", 3, "10.0.0.1:7400"))
    assert load_roster(ring).member(3) is not None


STRANGE = [
    "a\x1b[31m:7400",
    "a\x00:7400",
    "a\u202eb:7400",
    "unix:socket:7400",
    "unix:7400",
    "xds:a:7400",
    "xds:7400",
    "dns:a:7400",
    "ipv4:10.0.0.1:7400",
    "a,b:7400",
    "a?b:7400",
    "user@a:7400",
    "[10.0.0.1]:7400",
    "[::1:7400",
    "[fe80::1%a,b]:7400",
    "fe80::1:7400",
    "a:\u0663",
    "a:\u00b2",
    "a:70000",
    "-a:7400",
    f"{'a' * 254}:7400",
]


@pytest.mark.parametrize("address", STRANGE)
def test_what_is_no_address_of_a_machine_is_not_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    ring = make_ring(tmp_path / "ring", 2)
    with pytest.raises(UserError, match="is not an address: write it as host:port"):
        authority.request(tmp_path / "machine", 2, address)
    with pytest.raises(UserError, match="is not an address: write it as host:port"):
        authority.add(ring, address)
    assert not (ring / "node-2").exists()
    with monkeypatch.context() as careless:  # a machine with another program
        careless.setattr(authority, "_address", lambda text: text)
        path = authority.request(tmp_path / "machine", 2, address)
    with pytest.raises(UserError, match="is not an address: write it as host:port"):
        authority.sign(ring, path)


@pytest.mark.parametrize(
    "address", ["a:1", "node_3.example.org.:7400", "10.0.0.1:65535", "[::1]:80", "[fe80::1%eth0]:1"]
)
def test_names_and_addresses_of_machines_are(tmp_path: Path, address: str) -> None:
    ring = make_ring(tmp_path / "ring", 2)
    assert authority.add(ring, address).address == address


def test_a_certificate_is_renewed_with_the_same_keys(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "ring", 2)
    folder = ring / "node-1"
    signer, key = authority._authority(ring)
    old = certificates.issue(1, load_identity(folder).key.public_key(), signer, key, days=-1)
    (folder / "tls.crt").write_bytes(certificates.pem_of(old))
    with pytest.raises(UserError, match=r"expired on .*renew it with basil peers request"):
        load_identity(folder)
    address = load_roster(ring).members[1].address
    out = authority.sign(ring, authority.request(folder, 1, address))
    (folder / "tls.crt").write_bytes((out / "tls.crt").read_bytes())
    load_roster(folder).check(load_identity(folder))
    assert load_roster(folder).version == 2


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    ring, other = make_ring(tmp_path / "ring", 2), make_ring(tmp_path / "other", 2)
    (ring / "node-0" / "tls.crt").write_bytes((other / "node-0" / "tls.crt").read_bytes())
    with pytest.raises(UserError, match="was not issued by"):
        load_identity(ring / "node-0")


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "ring", 2)
    (ring / "node-0" / "tls.crt").write_bytes((ring / "node-1" / "tls.crt").read_bytes())
    with pytest.raises(UserError, match="does not belong to"):
        load_identity(ring / "node-0")


@pytest.mark.parametrize("name", ["tls.key", "signing.key", "tls.crt", "ca.crt"])
def test_a_missing_or_broken_file_is_named(tmp_path: Path, name: str) -> None:
    ring = make_ring(tmp_path / "ring", 2)
    path = ring / "node-0" / name
    path.write_bytes(b"nonsense")
    with pytest.raises(UserError, match=f"{name} is not a"):
        load_identity(ring / "node-0")
    path.unlink()
    with pytest.raises(UserError, match=f"{name} cannot be read"):
        load_identity(ring / "node-0")


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("node-3", 3),
        ("node-0", 0),
        ("node-03", None),
        ("node--3", None),
        ("node-٣", None),
        ("node-", None),
        ("3", None),
        ("node-3\n", None),
        ("node-1234567890", None),
    ],
)
def test_only_the_exact_name_of_a_node_is_one(name: str, node: int | None) -> None:
    assert parse_name(name) == node
