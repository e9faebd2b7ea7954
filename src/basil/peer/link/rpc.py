"""How gRPC is set up between peers: mutual TLS always, and bounds where its defaults have none.

Two methods with bytes in and bytes out; no protobuf is needed.  `docs/operate/security.md` says
what each setting is for.
"""

import ctypes
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc

from basil.errors import UserError
from basil.peer.limits import MESSAGE, Limits
from basil.peer.link.connections import Connections
from basil.peer.members.certificates import name_of, pem_of, pem_of_key
from basil.peer.members.identity import Identity

SERVICE = "basil.Peer"
DELIVER, ASK = f"/{SERVICE}/Deliver", f"/{SERVICE}/Ask"
STREAMS = 2  # at once on one connection: a transfer and a question
FRAME = 1 << 20  # bytes of an HTTP/2 frame: gRPC has less to do with fewer of them
_M_ARENA_MAX = -8  # of glibc's malloc.h


def server(
    identity: Identity,
    address: str,
    limits: Limits,
    members: int,
    deliver: Callable[..., bytes],
    ask: Callable[..., bytes],
) -> grpc.Server:
    """A server at this address that listens to nobody without a certificate of the ring."""
    _few_arenas()
    options = [
        *_at_both_ends(limits),
        ("grpc.max_concurrent_streams", STREAMS),
        ("grpc.so_reuseport", 0),
        ("grpc.http2.lookahead_bytes", limits.window),
        ("grpc.http2.max_frame_size", FRAME),
        ("grpc.http2.min_ping_interval_without_data_ms", 1000),
        ("grpc.server_handshake_timeout_ms", round(1000 * limits.handshake)),
        ("grpc.max_allowed_incoming_connections", places(limits, members)),
    ]
    # Each member may hold a thread with its transfer and a few with its questions, and so may those
    # together whose certificate is an old one.  What is refused is over in a moment.
    threads = (1 + limits.asking) * (members + 1)
    workers = ThreadPoolExecutor(threads, thread_name_prefix="basil-serve")
    made = grpc.server(workers, options=options)
    handlers = {
        "Deliver": grpc.stream_unary_rpc_method_handler(deliver),
        # Were it unary, gRPC would wait for the question in one of the threads, whoever asks.
        "Ask": grpc.stream_unary_rpc_method_handler(ask),
    }
    made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    credentials = grpc.ssl_server_credentials(
        [(pem_of_key(identity.key), pem_of(identity.certificate))],
        root_certificates=pem_of(identity.authority),
        require_client_auth=True,
    )
    try:
        bound = made.add_secure_port(address, credentials)
    except RuntimeError:
        bound = 0
    if not bound:
        raise UserError(
            f"{address} cannot be listened on: another program uses it, or it is no address of this"
            " machine"
        )
    return made


def connections(address: str, limits: Limits, members: int) -> Connections:
    """Those that come in there."""
    return Connections(address, places(limits, members))


def places(limits: Limits, members: int) -> int:
    """For incoming connections; half of the files that this process may open are left."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(limits.connections * members, files // 2))


def channel(identity: Identity, node: int, address: str, limits: Limits) -> grpc.Channel:
    """A connection to a node; TLS makes sure that it is that node and no other."""
    options = [
        *_at_both_ends(limits),
        ("grpc.ssl_target_name_override", name_of(node)),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),  # or an environment variable could send it elsewhere
        ("grpc.enable_retries", 0),  # we retry ourselves, and count
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", round(1000 * limits.handshake)),
        ("grpc.max_reconnect_backoff_ms", round(1000 * limits.backoff_most)),
    ]
    credentials = grpc.ssl_channel_credentials(
        root_certificates=pem_of(identity.authority),
        private_key=pem_of_key(identity.key),
        certificate_chain=pem_of(identity.certificate),
    )
    return grpc.secure_channel(address, credentials, options)


def _at_both_ends(limits: Limits) -> list[tuple[str, int]]:
    answer = round(1000 * limits.keepalive_answer)
    return [
        ("grpc.max_receive_message_length", MESSAGE),
        ("grpc.max_send_message_length", MESSAGE),
        ("grpc.per_message_decompression", 0),  # nobody compresses: it would be an attack
        ("grpc.http2.bdp_probe", 0),  # or the window grows with what an insider sends
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.keepalive_time_ms", round(1000 * limits.keepalive)),
        ("grpc.keepalive_timeout_ms", answer),
        ("grpc.http2.ping_timeout_ms", answer),  # or a frozen peer is not noticed for a minute
    ]


def _few_arenas() -> None:
    """Have the C library keep freed memory in two places instead of eight for each core.

    gRPC allocates in many threads.  With a place for each of them a flood of large bodies left
    about twice as much memory behind, all of it freed.  Other C libraries are left alone.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def status_of(reason: str) -> Any:
    """The gRPC status for a refusal: those of `AGAIN` may be tried again."""
    return _STATUS.get(reason, grpc.StatusCode.INVALID_ARGUMENT)


_Code = grpc.StatusCode
_NEVER = ("unknown", "certificate", "revoked", "excluded", "sender", "unexpected")
_LATER = ("busy", "waiting", "memory", "rate", "disk", "early")
_STATUS = {
    **dict.fromkeys(_LATER, _Code.RESOURCE_EXHAUSTED),
    **dict.fromkeys(_NEVER, _Code.PERMISSION_DENIED),
    "late": _Code.FAILED_PRECONDITION,
    "slow": _Code.DEADLINE_EXCEEDED,
    "no such question": _Code.NOT_FOUND,
}
_OF_GRPC = (_Code.UNAVAILABLE, _Code.CANCELLED, _Code.UNKNOWN, _Code.INTERNAL)
AGAIN = frozenset({_Code.RESOURCE_EXHAUSTED, _Code.DEADLINE_EXCEEDED, *_OF_GRPC})
