"""What the owner of a ring does: make it, add and revoke members, sign the requests of machines.

ring/ca/           the authority's key and certificate: on one machine, best one that is not a node
ring/roster.toml   who takes part, signed
ring/node-3/       all that machine 3 needs: its keys and certificate, the authority's certificate
                   and the roster
ring/signed/       answers to requests: the same without keys, since those never left their machine
"""

import json
import re
import secrets
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv6Address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from basil.errors import UserError
from basil.peer.members import certificates, roster
from basil.peer.members.files import PRIVATE, read, write
from basil.peer.members.identity import (
    AUTHORITY,
    CERTIFICATE,
    SIGNING_KEY,
    TLS_KEY,
    node_of,
    parse_name,
    raw_public_key,
    read_certificate,
    read_signing_key,
    read_tls_key,
)
from basil.peer.members.roster import Member, Roster, load_roster, save_roster
from basil.recipe import load, parse, to_toml

CA, CA_KEY, SIGNED, REQUEST = "ca", "ca.key", "signed", "request.json"
CONTEXT = b"basil request 1\n"
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?")
_PORT = re.compile(r"[0-9]{1,5}")
_SCHEMES = ("dns", "ipv4", "ipv6", "unix", "unix-abstract", "vsock", "xds", "google-c2p")
DEMO = ("scheme.rounds=80", "attack.name=none", "record.every=5")


def demo_recipe(nodes: int) -> str:
    """The demo's data on a ring of this size: a run of well under a minute, and nobody lies."""
    byzantine = max(0, min(6, (nodes - 1) // 3))
    size = (f"ring.nodes={nodes}", f"ring.byzantine={byzantine}")
    return to_toml(
        load("demo", [*DEMO, *size, f"ring.connectivity={min(byzantine + 1, nodes - 1)}"])
    )


def addresses(nodes: int, hosts: Sequence[str], port: int) -> list[str]:
    """One host: its ports from `port` on.  A host for each node: the same port on all of them."""
    if len(hosts) == 1:
        if port + nodes > 65536:
            raise UserError(f"--port {port}: {nodes} nodes need ports up to {port + nodes - 1}")
        return [_address(f"{hosts[0]}:{port + i}") for i in range(nodes)]
    if len(hosts) != nodes:
        raise UserError(f"--host: give one host, or one for each of the {nodes} nodes")
    return [_address(f"{host}:{port}") for host in hosts]


def init(
    folder: Path,
    recipe: str,
    places: Sequence[str],
    keys: bool = True,
    days: float = certificates.NODE_DAYS,
) -> Roster:
    """A new ring.  Without `keys` it has no members yet: they come by request and sign."""
    _check_days(days)
    if (folder / CA).exists() or (folder / roster.ROSTER).exists():
        raise UserError(f"{folder} holds a ring already: its keys would be lost")
    run = secrets.token_hex(8)
    key, certificate = certificates.make_authority(run)
    try:
        (folder / CA).mkdir(parents=True, mode=0o700)
        write(folder / CA / CA_KEY, certificates.pem_of_key(key), PRIVATE)
        write(folder / AUTHORITY, certificates.pem_of(certificate))
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error
    members = [_make_node(folder, i, place, days) for i, place in enumerate(places) if keys]
    return _publish(folder, Roster(run, 1, tuple(members), (), recipe))


def add(folder: Path, address: str, days: float = certificates.NODE_DAYS) -> Member:
    """One more member with keys made here, for a try-out on one machine."""
    _check_days(days)
    old = load_roster(folder)
    node = max((m.id for m in old.members), default=-1) + 1
    _address(address)
    _free(old, node, address)
    member = _make_node(folder, node, address, days)
    _publish(folder, _with_member(old, member))
    return member


def revoke(folder: Path, node: int) -> Roster:
    """Nobody listens to this member any more, once they have the new roster."""
    old = load_roster(folder)
    if old.member(node) is None:
        raise UserError(f"node {node} is not in {folder / roster.ROSTER}")
    if node in old.revoked:
        raise UserError(f"node {node} is revoked already")
    revoked = tuple(sorted({*old.revoked, node}))
    return _publish(folder, replace(old, version=old.version + 1, revoked=revoked))


def request(folder: Path, node: int, address: str) -> Path:
    """On the machine itself: make keys, if there are none, and ask for a certificate."""
    if parse_name(certificates.name_of(node)) is None:
        raise UserError(f"--node {node}: it must be a whole number, 0 or more")
    _address(address)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key, signing = _own_keys(folder)
        csr = certificates.pem_of(certificates.make_request(node, key)).decode()
        public = raw_public_key(signing).hex()
        fields = {"address": address, "csr": csr, "public_key": public}
        proof = signing.sign(_signed_part(fields)).hex()
        path = folder / REQUEST
        write(path, json.dumps({**fields, "proof": proof}, indent=1).encode())
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error
    return path


def sign(folder: Path, path: Path, days: float = certificates.NODE_DAYS) -> Path:
    """At the authority: a certificate for a request.  The folder with what goes to the machine."""
    _check_days(days)
    csr, public, address = _read_request(path)
    node, tls = node_of(csr), csr.public_key()
    if not isinstance(tls, ec.EllipticCurvePublicKey):
        raise UserError(f"{path}: its TLS key is not on P-256")
    old = load_roster(folder)
    known = old.member(node)
    if known is not None and known.public_key != public:
        raise UserError(
            f"{path}: node {node} has another signing key in the roster: a new machine needs a new"
            " number, or the old one's key"
        )
    _free(old, node, address)
    certificate = certificates.issue(node, tls, *_authority(folder), days)
    out = folder / SIGNED / certificates.name_of(node)
    out.mkdir(parents=True, exist_ok=True)
    _publish(folder, _with_member(old, _member(folder, out, address, public, certificate)))
    return out


def _with_member(old: Roster, member: Member) -> Roster:
    others = [m for m in old.members if m.id != member.id]
    members = tuple(sorted([*others, member], key=lambda m: m.id))
    tree, recipe = tomllib.loads(old.recipe), old.recipe
    if member.id >= tree["ring"]["nodes"]:  # the recipe's ring grows with its members
        tree["ring"]["nodes"] = member.id + 1
        recipe = to_toml(parse(tree, roster.ROSTER))
    return replace(old, version=old.version + 1, members=members, recipe=recipe)


def _publish(folder: Path, made: Roster) -> Roster:
    """Sign, and hand out to every folder of a node that is here."""
    _, key = _authority(folder)
    made = replace(made, signature=roster.sign(made, key))
    for place in (folder, *folder.glob("node-*"), *(folder / SIGNED).glob("node-*")):
        if (place / AUTHORITY).exists():
            save_roster(place, made)
    return made


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = read_tls_key(folder / CA / CA_KEY)
    return read_certificate(folder / AUTHORITY), key


def _make_node(folder: Path, node: int, address: str, days: float) -> Member:
    place = folder / certificates.name_of(node)
    place.mkdir(mode=0o700)
    key, signing = _own_keys(place)
    certificate = certificates.issue(node, key.public_key(), *_authority(folder), days)
    return _member(folder, place, address, raw_public_key(signing), certificate)


def _member(
    folder: Path, place: Path, address: str, public_key: bytes, certificate: x509.Certificate
) -> Member:
    """Put the certificate into its place.  Returns what the roster says of its node."""
    write(place / CERTIFICATE, certificates.pem_of(certificate))
    write(place / AUTHORITY, read(folder / AUTHORITY))
    node, known = node_of(certificate), certificates.fingerprint(certificate)
    return Member(node, address, public_key, known)


def _own_keys(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, Ed25519PrivateKey]:
    """The keys in a folder; made there at the first time."""
    if not (folder / TLS_KEY).exists():
        write(folder / TLS_KEY, certificates.pem_of_key(certificates.new_key()), PRIVATE)
    if not (folder / SIGNING_KEY).exists():
        fresh = Ed25519PrivateKey.generate()
        write(folder / SIGNING_KEY, certificates.pem_of_key(fresh), PRIVATE)
    tls = read_tls_key(folder / TLS_KEY)
    return tls, read_signing_key(folder / SIGNING_KEY)


def _read_request(path: Path) -> tuple[x509.CertificateSigningRequest, bytes, str]:
    """A request, if its maker holds both keys."""
    try:
        fields = json.loads(read(path))
        proof = bytes.fromhex(fields.pop("proof"))
        public = bytes.fromhex(fields["public_key"])
        Ed25519PublicKey.from_public_bytes(public).verify(proof, _signed_part(fields))
        csr = x509.load_pem_x509_csr(fields["csr"].encode())
        if not csr.is_signature_valid:
            raise ValueError("its signature is wrong")
        address = _address(fields["address"])
    except InvalidSignature as error:
        raise UserError(f"{path} was changed after it was made") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a request: {error}") from error
    return csr, public, address


def _signed_part(fields: dict[str, str]) -> bytes:
    return CONTEXT + json.dumps(fields, sort_keys=True).encode()


def _check_days(days: float) -> None:
    if not 0 < days <= certificates.CA_DAYS:
        raise UserError(
            f"--days {days:g}: it must be more than 0, and {certificates.CA_DAYS} at most"
        )


def _free(old: Roster, node: int, address: str) -> None:
    nodes = tomllib.loads(old.recipe)["ring"]["nodes"]
    if node > nodes:  # all numbers up to the largest have a place
        raise UserError(
            f"node {node} has no place in a ring of {nodes}: the next free number is {nodes}"
        )
    for member in old.members:
        if member.address == address and member.id != node:
            raise UserError(f"{address} is the address of node {member.id} already")
    if node in old.revoked:
        raise UserError(f"node {node} was revoked: a new member needs a new number")


def _address(text: str) -> str:
    """host:port, if it is that, and nothing that gRPC takes for another way to reach a node."""
    host, _, port = text.rpartition(":")
    good = _HOST.fullmatch(host) and len(host) <= 253 and host.lower() not in _SCHEMES
    if host.startswith("["):
        good = host.endswith("]") and _is_ipv6(host[1:-1])
    if not good or not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        raise UserError(f"{text!r} is not an address: write it as host:port")
    return text


def _is_ipv6(text: str) -> bool:
    try:
        return bool(_IPV6.fullmatch(text) and IPv6Address(text))
    except ValueError:
        return False
