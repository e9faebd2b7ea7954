"""Who this node is: the two keys and the certificate in its folder."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from basil.errors import UserError
from basil.peer.members.certificates import fingerprint
from basil.peer.members.files import read, read_private

TLS_KEY, SIGNING_KEY, CERTIFICATE, AUTHORITY = "tls.key", "signing.key", "tls.crt", "ca.crt"


@dataclass(frozen=True)
class Identity:
    """A node's own name and keys.  Never printed, never sent."""

    node: int
    folder: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    signing: Ed25519PrivateKey = field(repr=False)
    authority: x509.Certificate = field(repr=False)

    @property
    def public_key(self) -> bytes:
        """Of the signing key, as it stands in the roster."""
        return raw_public_key(self.signing)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.certificate)


def load_identity(folder: Path) -> Identity:
    """The identity in a node's folder, or one sentence on why it cannot be used."""
    certificate = read_certificate(folder / CERTIFICATE)
    authority = read_certificate(folder / AUTHORITY)
    key = read_tls_key(folder / TLS_KEY)
    signing = read_signing_key(folder / SIGNING_KEY)
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise UserError(
            f"{folder / CERTIFICATE} was not issued by {folder / AUTHORITY}: they must come from"
            " the same ring"
        ) from error
    if certificate.public_key() != key.public_key():
        raise UserError(f"{folder / CERTIFICATE} does not belong to {folder / TLS_KEY}")
    _check_dates(certificate, folder)
    return Identity(node_of(certificate), folder, certificate, key, signing, authority)


def node_of(certificate: x509.Certificate | x509.CertificateSigningRequest) -> int:
    """The number in the name node-3."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    name = str(names[0].value) if len(names) == 1 else ""
    node = parse_name(name)
    if node is None:
        raise UserError(f"the certificate of {name!r} names no node: it should be like node-3")
    return node


def parse_name(name: str) -> int | None:
    """node-3 -> 3; None for whatever is not exactly that."""
    digits = name.removeprefix("node-")
    if digits == name or not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        return None
    return int(digits) if str(int(digits)) == digits else None


def read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(read(path))
    except ValueError as error:
        raise UserError(f"{path} is not a certificate: {error}") from error


def raw_public_key(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def read_tls_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = _read_key(path)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UserError(f"{path} is not a key on P-256")
    return key


def read_signing_key(path: Path) -> Ed25519PrivateKey:
    key = _read_key(path)
    if not isinstance(key, Ed25519PrivateKey):
        raise UserError(f"{path} is not an Ed25519 key")
    return key


def _read_key(path: Path) -> object:
    try:
        return serialization.load_pem_private_key(read_private(path), password=None)
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is not a private key: {error}") from error


def _check_dates(certificate: x509.Certificate, folder: Path) -> None:
    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        raise UserError(
            f"{folder / CERTIFICATE} expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M}"
            f" UTC: renew it with basil peers request --dir {folder} and basil peers sign"
        )
    if now < certificate.not_valid_before_utc:
        raise UserError(
            f"{folder / CERTIFICATE} is not valid before"
            f" {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC: check this machine's clock"
        )
