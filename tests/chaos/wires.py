"""The network of a simulated world, in the place of gRPC: delays, losses, cuts, partitions.

A channel has of gRPC's what peers use of it.  TLS is taken as given: a caller is who it says.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc

from basil.peer.link import rpc
from basil.peer.members.certificates import name_of, pem_of
from basil.peer.members.identity import Identity
from chaos.threads import World

Code = grpc.StatusCode
RECONNECT = 0.3  # seconds between two attempts to reach a node


@dataclass
class Weather:
    """What a night does to messages; probabilities of each transfer, seconds."""

    delay: float = 0.002
    lost: float = 0.0
    doubled: float = 0.0
    cut: float = 0.0
    unanswered: float = 0.0
    slow: float = 0.0  # takes up to `longest` seconds: overtaken by what comes later
    longest: float = 2.0


class Failure(grpc.RpcError):  # type: ignore[misc]
    def __init__(self, code: Any, detail: str = "") -> None:
        super().__init__(detail)
        self._code = code

    def code(self) -> Any:
        return self._code


class Context:
    """What a gRPC method is told of its caller."""

    def __init__(self, caller: Identity) -> None:
        self._auth = _authentic(caller)
        self.cancelled = False

    def auth_context(self) -> dict[str, list[bytes]]:
        return self._auth

    def abort(self, code: Any, detail: str) -> None:
        raise Failure(code, detail)

    def cancel(self) -> None:
        self.cancelled = True

    def is_active(self) -> bool:
        return not self.cancelled

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def time_remaining(self) -> float:
        return 10.0

    def add_callback(self, _: Callable[[], None]) -> bool:
        return True


def _authentic(caller: Identity) -> dict[str, list[bytes]]:
    known = _AUTHENTIC.get(caller.node)
    if known is None or known[0] is not caller.certificate:
        named = {
            "x509_common_name": [name_of(caller.node).encode()],
            "x509_pem_cert": [pem_of(caller.certificate)],
        }
        known = _AUTHENTIC[caller.node] = caller.certificate, named
    return known[1]


_AUTHENTIC: dict[int, tuple[Any, dict[str, list[bytes]]]] = {}


class Connections:
    """None that could become too many."""

    def belongs(self, peer: str, node: int) -> None:
        pass

    def sweep(self) -> None:
        pass


@dataclass
class Served:
    """A node that listens."""

    node: int
    life: int
    methods: dict[str, Callable[..., bytes]]


class Network:
    def __init__(self, world: World, weather: Weather) -> None:
        self.world, self.weather = world, weather
        self.served: dict[str, Served] = {}
        self.down: set[frozenset[int]] = set()  # links
        self.sent = self.faults = 0
        # Told of every call as it leaves: a Byzantine node's may be another by then.
        self.says: Callable[[Call], None] = lambda call: None
        # Told of every message that a node has acknowledged.
        self.took: Callable[[int, Call], None] = lambda node, call: None

    # -- what takes the place of basil.peer.link.rpc -------------------------------------------

    def server(
        self, identity: Identity, address: str, limits: Any, members: int, deliver: Any, ask: Any
    ) -> "Server":
        return Server(self, address, identity.node, {rpc.DELIVER: deliver, rpc.ASK: ask})

    def channel(self, identity: Identity, node: int, address: str, limits: Any) -> "Channel":
        return Channel(self, identity, node, address)

    def connections(self, address: str, limits: Any, members: int) -> Connections:
        return Connections()

    # -- a call --------------------------------------------------------------------------------

    def happens(self, what: float) -> bool:
        found = self.world.random.random() < what
        self.faults += found
        return found

    def delay(self) -> float:
        weather, draw = self.weather, self.world.random
        if self.happens(weather.slow):
            return draw.uniform(0, weather.longest)
        return draw.uniform(0.5, 1.5) * weather.delay

    def reachable(self, sender: int, address: str) -> Served | None:
        served = self.served.get(address)
        if served is None or served.life != self.world.lives.get(served.node, 0):
            return None
        return None if frozenset((sender, served.node)) in self.down else served


@dataclass
class Call:
    """One that is under way."""

    network: Network
    identity: Identity
    address: str
    method: str
    frames: list[bytes]
    timeout: float
    patient: bool = False  # it waits for a node that cannot be reached, as gRPC does
    answer: bytes | None = None
    code: Any = None
    ended: bool = False
    cancelled: bool = False
    waiting: list[Any] = field(default_factory=list)
    context: Context | None = None
    life: int = 0  # of the node that calls
    answered: bytes | None = None  # by the node that was called, whether that arrives or not

    def begin(self) -> "Call":
        network, world = self.network, self.network.world
        self.life = world.lives.get(self.identity.node, 0)
        network.sent += 1
        world.at(world.now + self.timeout, self.end, None, Code.DEADLINE_EXCEEDED)
        if network.happens(network.weather.lost):
            return self  # until its deadline
        times = 2 if network.happens(network.weather.doubled) else 1
        for _ in range(times):
            world.at(world.now + network.delay(), self.arrive)
        return self

    def arrive(self) -> None:
        network = self.network
        served = network.reachable(self.identity.node, self.address)
        world = network.world
        if served is not None:
            world.spawn(lambda: self.serve(served), served.node)
        elif not self.patient:
            world.at(world.now + 0.01, self.end, None, Code.UNAVAILABLE)
        elif not self.ended and self.life == world.lives.get(self.identity.node, 0):
            world.at(world.now + RECONNECT, self.arrive)

    def serve(self, served: Served) -> None:
        network = self.network
        answer, code = None, None
        self.context = Context(self.identity)
        try:
            answer = served.methods[self.method](self.pieces(), self.context)
            self.answered = answer
            network.took(served.node, self)
        except Failure as failure:
            code = failure.code()
        if network.happens(network.weather.unanswered):
            code = Code.UNAVAILABLE
        if network.reachable(self.identity.node, self.address) is None:
            code = Code.UNAVAILABLE  # the link broke meanwhile
        network.world.at(network.world.now + network.delay(), self.end, answer, code)

    def pieces(self) -> Iterator[bytes]:
        network = self.network
        last = len(self.frames)
        if network.happens(network.weather.cut):
            last = network.world.random.randrange(len(self.frames))
        yield from self.frames[:last]
        if last < len(self.frames):
            raise Failure(Code.CANCELLED, "cut off")

    def end(self, answer: bytes | None, code: Any) -> None:
        if not self.ended:
            self.answer, self.code, self.ended = answer, code, True
            for task in self.waiting:
                self.network.world.wake(task)

    def cancel(self) -> None:
        self.cancelled = True
        self.end(None, Code.CANCELLED)

    def result(self) -> bytes:
        while not self.ended:
            self.waiting.append(self.network.world.task)
            self.network.world.park()
        if self.cancelled:
            raise grpc.FutureCancelledError
        if self.code is not None:
            raise Failure(self.code)
        assert self.answer is not None
        return self.answer


class Channel:
    def __init__(self, network: Network, identity: Identity, node: int, address: str) -> None:
        self._network, self._identity, self._address = network, identity, address
        self._closed = False

    def _call(
        self, method: str, frames: Iterable[bytes], timeout: float, patient: bool = False
    ) -> Call:
        if self._closed:
            raise ValueError("the channel is closed")
        network, whose, frames = self._network, self._identity, list(frames)
        call = Call(network, whose, self._address, method, frames, timeout, patient)
        self._network.says(call)
        return call.begin()

    def stream_unary(self, method: str) -> "Method":
        return Method(partial(self._call, method))

    def unary_unary(self, method: str) -> "Method":
        return Method(lambda data, *how: self._call(method, [data], *how))

    def close(self) -> None:
        self._closed = True


class Method:
    def __init__(self, call: Callable[..., Call]) -> None:
        self._call = call

    def __call__(self, frames: Any, timeout: float, wait_for_ready: bool = False) -> bytes:
        return self._call(frames, timeout, wait_for_ready).result()


class Server:
    def __init__(self, network: Network, address: str, node: int, methods: dict[str, Any]) -> None:
        self._network, self._address = network, address
        self._served = Served(node, network.world.lives.get(node, 0), methods)

    def start(self) -> None:
        self._network.served[self._address] = self._served

    def stop(self, grace: float) -> "Server":
        self._network.served.pop(self._address, None)
        return self

    def wait(self) -> None:
        pass
