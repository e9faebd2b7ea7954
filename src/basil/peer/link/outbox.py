"""The sending end: for each receiver a queue, a thread and a connection of its own.

So a receiver that is dead, slow or frozen delays nobody else, and costs a bounded amount of memory:
what waits for it longest is displaced by what is newer.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Any

import grpc

from basil.peer.limits import Limits
from basil.peer.link.counters import Tallies
from basil.peer.link.guard import Guard, Watched
from basil.peer.link.rpc import AGAIN, DELIVER
from basil.peer.messages.bodies import Chunk
from basil.peer.messages.manifest import Manifest


@dataclass(frozen=True, eq=False)
class Parcel:
    """A message as it goes out; all receivers share it."""

    manifest: Manifest
    chunks: Sequence[Chunk]
    until: float  # when to give up


class Outbox:
    """All that goes to one receiver, one after the other."""

    def __init__(
        self, node: int, channel: grpc.Channel, limits: Limits, tallies: Tallies, guard: Guard
    ) -> None:
        self.node, self.channel = node, channel
        self._limits, self._tallies, self._guard = limits, tallies, guard
        self._queue: deque[Parcel] = deque()
        self._change = Condition()
        self._busy = self._over = False
        self._thread = Thread(target=self._run, name=f"basil-to-{node}", daemon=True)
        self._thread.start()

    def put(self, parcel: Parcel) -> None:
        """Never waits.  A newer message of a kind displaces the oldest of that kind."""
        with self._change:
            alike = [p for p in self._queue if p.manifest.kind == parcel.manifest.kind]
            if len(alike) >= self._limits.outbox:
                self._queue.remove(alike[0])
                self._tallies.add(self.node, dropped=1)
            self._queue.append(parcel)
            self._change.notify_all()

    def flush(self, until: float) -> bool:
        """Wait until all is sent or given up, or that moment of the monotonic clock has come."""
        with self._change:
            idle = lambda: not (self._queue or self._busy)  # noqa: E731
            return self._change.wait_for(idle, until - time.monotonic())

    def close(self) -> None:
        with self._change:
            self._over = True
            self._queue.clear()
            self._change.notify_all()
        self.channel.close()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._change:
                self._busy = False
                self._change.notify_all()
                while not self._queue and not self._over:
                    self._change.wait()
                if self._over:
                    return
                parcel, self._busy = self._queue.popleft(), True
            self._deliver(parcel)
            del parcel  # or an idle thread would hold on to the last model

    def _deliver(self, parcel: Parcel) -> None:
        pause = self._limits.backoff
        while not self._over:
            outcome = self._attempt(parcel)
            if outcome is None:
                self._tallies.add(self.node, sent=1, bytes_sent=parcel.manifest.size)
                return
            self._tallies.reject(self.node, outcome.name.lower().replace("_", " "))
            if outcome not in AGAIN or time.monotonic() + pause > parcel.until:
                break
            with self._change:
                self._change.wait_for(lambda: self._over, pause)
            pause = min(2 * pause, self._limits.backoff_most)
            self._tallies.add(self.node, retries=1)
        self._tallies.add(self.node, dropped=1)

    def _attempt(self, parcel: Parcel) -> Any:
        """One transfer.  None when it is acknowledged, else the status."""
        seconds = self._limits.deadline(parcel.manifest.size)
        watched: Watched | None = None

        def frames() -> Iterator[bytes]:
            """The manifest, then chunks, each copied when its turn comes."""
            yield parcel.manifest.encode()
            for chunk in parcel.chunks:
                if watched is not None:
                    watched.move()
                yield b"".join(chunk)

        try:
            call = self.channel.stream_unary(DELIVER).future(frames(), timeout=seconds)
            with self._guard.watch(call.cancel, seconds) as watched:
                call.result()
        except grpc.RpcError as error:
            return error.code()
        except (grpc.FutureCancelledError, ValueError):  # ValueError: the channel was closed
            return grpc.StatusCode.CANCELLED
        return None
