"""Small rings on loopback, and members that do not keep to the rules."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import torch
from torch import Tensor, nn

from basil.learning.layout import Layout, layout_of
from basil.peer.limits import Limits
from basil.peer.link import rpc
from basil.peer.link.reception import Message
from basil.peer.link.transport import Transport
from basil.peer.members import authority
from basil.peer.members.identity import Identity, load_identity
from basil.peer.members.roster import Roster, load_roster
from basil.peer.messages.bodies import Refused, RowForm, cut, digest_of, forms_of
from basil.peer.messages.manifest import Manifest, pack_chunks
from basil.protocol.requests import Body

QUICK = Limits(grace=2.0, stall=1.0, give_up=20.0, keepalive=1.0, keepalive_answer=1.0, waiting=100)
VALUES = 1000
STAGE = "train"


def layout_for(values: int = VALUES) -> Layout:
    return layout_of(nn.Linear(values - 1, 1))


def model(seed: int = 0, values: int = VALUES) -> Tensor:
    return torch.randn(values, generator=torch.Generator().manual_seed(seed))


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def make_ring(folder: Path, nodes: int = 3) -> Path:
    places = [f"127.0.0.1:{port}" for port in free_ports(nodes)]
    authority.init(folder, authority.demo_recipe(nodes), places)
    return folder


def until(condition: Callable[[], Any], seconds: float = 15.0) -> bool:
    """Wait for something that other threads or processes bring about."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Peer:
    """An honest node: its transport, and what it was handed."""

    def __init__(
        self,
        ring: Path,
        node: int,
        limits: Limits = QUICK,
        values: int = VALUES,
        rows: RowForm | None = None,
        listen: str | None = None,
        roster: Roster | None = None,
    ) -> None:
        folder = ring / f"node-{node}"
        self.got: list[Message] = []
        self.transport = Transport(
            load_identity(folder),
            roster or load_roster(folder),
            layout_for(values),
            limits,
            self.got.append,
            folder / "marks.jsonl",
            rows=rows,
            listen=listen,
        )

    def __enter__(self) -> "Peer":
        self.transport.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.transport.stop()

    @property
    def rounds(self) -> list[int]:
        return [message.round for message in self.got]

    def refused(self, node: int) -> dict[str, int]:
        return dict(self.transport.counters[node].refused)


class Rogue:
    """A member that sends whatever it likes, with a certificate of the ring."""

    def __init__(self, ring: Path, node: int, values: int = VALUES) -> None:
        folder = ring / f"node-{node}"
        self.identity: Identity = load_identity(folder)
        self.roster = load_roster(folder)
        self.layout = layout_for(values)
        self._channels: list[grpc.Channel] = []

    def __enter__(self) -> "Rogue":
        return self

    def __exit__(self, *error: object) -> None:
        for channel in self._channels:
            channel.close()

    def channel(self, to: int) -> grpc.Channel:
        """A new connection."""
        member = self.roster.member(to)
        assert member is not None
        self._channels.append(rpc.channel(self.identity, to, member.address, QUICK))
        return self._channels[-1]

    def packed(self, round: int, body: Body, stage: str = STAGE) -> tuple[Manifest, bytes]:
        return pack(body, stage, round, self.identity, self.roster, self.layout)

    def signed(self, manifest: Manifest, **changes: Any) -> Manifest:
        """The manifest with some fields changed, and a signature that fits."""
        changed = replace(manifest, **changes, signature="")
        return replace(changed, signature=self.identity.signing.sign(changed.signed_part).hex())

    def deliver(self, to: int, frames: Iterable[bytes], timeout: float = 10.0) -> str:
        """What the receiver says: its acknowledgement, or its refusal."""
        method = self.channel(to).stream_unary(rpc.DELIVER)
        try:
            return bytes(method(iter(frames), timeout=timeout)).decode()
        except grpc.RpcError as error:
            return f"{error.code().name} {error.details()}"


def frames_of(manifest: Manifest, body: bytes) -> list[bytes]:
    size = 1 << 20
    return [manifest.encode(), *(body[i : i + size] for i in range(0, len(body), size))]


class Victim:
    """An honest node in a process of its own (victim.py)."""

    def __init__(self, ring: Path, node: int, values: int = VALUES) -> None:
        script = Path(__file__).with_name("victim.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(ring), str(node), str(values)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def __enter__(self) -> "Victim":
        self.at_rest: int = self._read()["at rest"]
        return self

    def __exit__(self, *error: object) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()

    def tell(self, line: str = "") -> dict[str, Any]:
        """Its state, after it has done what it was told."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        facts: dict[str, Any] = json.loads(self.process.stdout.readline())
        return facts


def pack(*args: Any) -> tuple[Manifest, bytes]:
    """A signed manifest and the body's bytes; arguments as for `pack_chunks`."""
    manifest, chunks = pack_chunks(*args)
    return manifest, b"".join(piece for chunk in chunks for piece in chunk)


def unpack(manifest: Manifest, data: bytes, layout: Layout, rows: RowForm | None = None) -> Body:
    """The body, if it is what the manifest and the layout say; else `Refused`."""
    forms = forms_of(layout, rows)
    forms.check(manifest.kind, manifest.size, manifest.layout)
    if len(data) != manifest.size:
        raise Refused("size", f"{len(data)} bytes instead of {manifest.size}")
    if digest_of(cut([data])) != manifest.sha256:
        raise Refused("digest", "the body is not what was signed")
    return forms.decode(manifest.kind, memoryview(bytearray(data)))
