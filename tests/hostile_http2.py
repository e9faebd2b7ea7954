"""HTTP/2 by hand, over TLS with a member's certificate: what no library would send."""

import socket
import ssl
from pathlib import Path

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def raw(folder: Path, address: str, name: str = "node-1") -> ssl.SSLSocket:
    """A connection to the node of that name, ready for frames."""
    link = tls(folder, address, name)
    link.sendall(PREFACE + frame(4, 0, 0, b""))
    return link


def tls(folder: Path, address: str, name: str = "node-1") -> ssl.SSLSocket:
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    context.load_verify_locations(folder / "ca.crt")
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(
        socket.create_connection((host, int(port)), 10), server_hostname=name
    )


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


def call(path: str, encoding: str = "identity") -> bytes:
    """The headers of a gRPC call."""
    return b"".join(
        _literal(name, value.encode())
        for name, value in [
            (b":method", "POST"),
            (b":scheme", "https"),
            (b":path", path),
            (b":authority", "node-1"),
            (b"content-type", "application/grpc"),
            (b"te", "trailers"),
            (b"grpc-encoding", encoding),
        ]
    )


def _literal(name: bytes, value: bytes) -> bytes:
    """HPACK, a literal header without indexing."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
