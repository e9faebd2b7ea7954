"""One hop between two processes: ours against bare gRPC, and a bare mutually authenticated socket.

All send the same bytes to the same receiver over loopback, by turns, and stop the clock when the
receiver has said that it has them.  Ours is all of it: serialise, hash, sign, write the mark to the
disk, gRPC, check, write the mark to the disk, hand on.  Bare gRPC has our settings and chunks, and
throws away what comes: ours can be no faster.  The bare TLS socket sends a length and the bytes,
and gets one byte back.
"""

import hashlib
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import timeit
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch
from torch import nn

from basil.learning.layout import Layout, layout_of
from basil.peer.limits import CHUNK, Limits
from basil.peer.link import rpc
from basil.peer.link.transport import Transport
from basil.peer.members import authority
from basil.peer.members.identity import AUTHORITY, CERTIFICATE, TLS_KEY, load_identity
from basil.peer.members.roster import load_roster

SIZES = {"0.47 MB": 117_500, "5 MB": 1_250_000, "50 MB": 12_500_000}  # values
REPEATS = {"0.47 MB": 100, "5 MB": 60, "50 MB": 30}
SENDER, RECEIVER = 0, 1
OURS, GRPC, TLS = "ours", "bare gRPC", "bare TLS"


def measure() -> dict[str, Any]:
    """Milliseconds of a hop, and how many times a bare TLS socket's: medians, and the fastest.

    On a machine that is shared the fastest tells what it costs, the median what one gets.
    """
    return {name: _hop(values, REPEATS[name]) for name, values in SIZES.items()}


def _hop(values: int, repeats: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        ring = Path(folder) / "ring"
        ports = _free_ports(2)
        places = [f"127.0.0.1:{port}" for port in ports]
        authority.init(ring, authority.demo_recipe(2), places)
        receiver = subprocess.Popen(
            [sys.executable, __file__, str(ring), str(values)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert receiver.stdout is not None
            grpc_port, tls_port = map(int, receiver.stdout.readline().split())
            process = psutil.Process(receiver.pid)
            return _compare(ring, grpc_port, tls_port, values, repeats, process)
        finally:
            receiver.terminate()
            receiver.wait()


def _compare(
    ring: Path,
    grpc_port: int,
    tls_port: int,
    values: int,
    repeats: int,
    receiver: psutil.Process,
) -> dict[str, float]:
    folder = ring / f"node-{SENDER}"
    transport = _transport(folder, _layout(values), lambda message: None)
    channel = rpc.channel(load_identity(folder), RECEIVER, f"127.0.0.1:{grpc_port}", Limits())
    call = channel.stream_unary(rpc.DELIVER)
    link = _context(folder, ssl.PROTOCOL_TLS_CLIENT).wrap_socket(
        socket.create_connection(("127.0.0.1", tls_port)), server_hostname=f"node-{RECEIVER}"
    )
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ours() -> None:
        transport.send((RECEIVER,), "train", k, model)
        assert transport.flush(60)

    def bare_grpc() -> None:
        chunks = (bytes(content[i : i + CHUNK]) for i in range(0, len(content), CHUNK))
        assert int(call(chunks)) == len(content)

    def bare_tls() -> None:
        link.sendall(len(content).to_bytes(8, "little"))
        link.sendall(content)
        assert link.recv(1) == b"!"

    ways: dict[str, Callable[[], None]] = {OURS: ours, GRPC: bare_grpc, TLS: bare_tls}
    times: dict[str, list[float]] = {name: [] for name in ways}
    cpu: Counter[str] = Counter()
    both = (psutil.Process(), receiver)
    for k in range(1, repeats + 4):
        model = torch.randn(values)
        content = model.numpy().data.cast("B")
        for name, send in ways.items():
            spent = _cpu(both)
            begin = time.perf_counter()
            send()
            end = time.perf_counter()
            if k > 3:
                times[name].append(end - begin)
                cpu[name] += _cpu(both) - spent
    assert transport.counters[RECEIVER].sent == repeats + 3
    link.close()
    channel.close()
    transport.stop()
    found: dict[str, float] = {}
    for name, pick in (("median", median), ("fastest", min)):
        found |= {f"{name}, {way}, ms": 1e3 * pick(times[way]) for way in ways}
        for way in (OURS, GRPC):
            found[f"{name}, {way}, ratio"] = pick(times[way]) / pick(times[TLS])
    found["one SHA-256, ms"] = 1e3 * min(timeit.repeat(lambda: hashlib.sha256(content), number=1))
    return found | {f"CPU of both, {name}, ms": 1e3 * s / repeats for name, s in cpu.items()}


def _cpu(processes: tuple[psutil.Process, ...]) -> float:
    """Seconds of CPU so far, in ticks of 10 ms: good for means only."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def serve(ring: Path, values: int) -> None:
    """The receiver: all ways, in one process."""
    folder = ring / f"node-{RECEIVER}"
    _transport(folder, _layout(values), lambda message: None)
    (grpc_port,) = _free_ports(1)
    address = f"127.0.0.1:{grpc_port}"
    bare = rpc.server(load_identity(folder), address, Limits(), 2, _count, _count)
    bare.start()
    listener = socket.create_server(("127.0.0.1", 0))
    print(grpc_port, listener.getsockname()[1], flush=True)
    raw, _ = listener.accept()
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link = _context(folder, ssl.PROTOCOL_TLS_SERVER).wrap_socket(raw, server_side=True)
    while head := link.recv(8):
        rest = np.empty(int.from_bytes(head, "little"), np.uint8).data
        while rest:
            rest = rest[link.recv_into(rest) :]
        link.sendall(b"!")
    time.sleep(60)


def _count(frames: Iterator[bytes], context: object) -> bytes:
    return b"%d" % sum(map(len, frames))


def _transport(folder: Path, layout: Layout, deliver: Any) -> Transport:
    identity, roster = load_identity(folder), load_roster(folder)
    made = Transport(identity, roster, layout, Limits(), deliver, folder / "marks.jsonl")
    made.start()
    return made


def _layout(values: int) -> Layout:
    with torch.device("meta"):
        return layout_of(nn.Linear(values - 1, 1))  # weights and a bias


def _context(folder: Path, side: int) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.load_cert_chain(folder / CERTIFICATE, folder / TLS_KEY)
    context.load_verify_locations(folder / AUTHORITY)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
