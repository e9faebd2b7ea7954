"""The sending end: for each receiver a queue, a thread and a connection of its own.

So a receiver that is dead, slow or frozen delays nobody else, and costs a bounded amount of memory:
what waits for it longest is displaced by what is newer.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Any

import grpc

from basil.host import host
from basil.peer.limits import Limits
from basil.peer.link.counters import Tallies
from basil.peer.link.guard import Guard
from basil.peer.link.rpc import AGAIN, DELIVER
from basil.peer.link.say import say
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
        self,
        node: int,
        connect: Callable[[], grpc.Channel],
        limits: Limits,
        tallies: Tallies,
        guard: Guard,
    ) -> None:
        self.node, self.channel, self._connect = node, connect(), connect
        self._limits, self._tallies, self._guard = limits, tallies, guard
        self._queue: deque[Parcel] = deque()
        self._change = host.condition()
        self._busy = self._over = self._failing = False
        self._thread: Thread | None = None  # started with the first message

    def put(self, parcel: Parcel) -> None:
        """Never waits.  A newer message of a kind displaces the oldest of that kind."""
        with self._change:
            alike = [p for p in self._queue if p.manifest.kind == parcel.manifest.kind]
            if len(alike) >= self._limits.outbox:
                self._queue.remove(alike[0])
                self._tallies.add(self.node, dropped=1)
            self._queue.append(parcel)
            self._start()
            self._change.notify_all()

    def _start(self) -> None:
        """Have a thread send what waits; if there is none to be had, the next message tries."""
        if self._thread is None:
            thread = host.thread(target=self._run, name=f"basil-to-{self.node}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self._fail(error)
            else:
                self._thread = thread

    def _fail(self, error: Exception) -> None:
        """This machine's fault, not the receiver's: counted each time, told once in a row."""
        self._tallies.add(self.node, failures=1)
        if not self._failing:
            self._failing = True
            say("cannot send", logging.WARNING, to=self.node, reason=str(error))

    def flush(self, until: float) -> bool:
        """Wait until all is sent or given up, or that moment of the monotonic clock has come."""
        with self._change:
            idle = lambda: not (self._queue or self._busy)  # noqa: E731
            return self._change.wait_for(idle, until - host.monotonic())

    def close(self) -> None:
        with self._change:
            self._over = True
            self._queue.clear()
            self._change.notify_all()
        self.channel.close()
        if self._thread is not None:
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
            try:
                self._deliver(parcel)
            except Exception as error:  # one message is lost, not all that come after it
                self._fail(error)
                self._tallies.add(self.node, dropped=1)
            del parcel  # or an idle thread would hold on to the last model

    def _deliver(self, parcel: Parcel) -> None:
        pause = self._limits.backoff
        while not self._over:
            outcome = self._attempt(parcel)
            if outcome is None:
                self._failing = False
                self._tallies.add(self.node, sent=1, bytes_sent=parcel.manifest.size)
                return
            self._tallies.reject(self.node, outcome.name.lower().replace("_", " "))
            if outcome not in AGAIN or host.monotonic() + pause > parcel.until:
                break
            with self._change:
                self._change.wait_for(lambda: self._over, pause)
            pause = min(2 * pause, self._limits.backoff_most)
            self._tallies.add(self.node, retries=1)
        self._tallies.add(self.node, dropped=1)

    def _attempt(self, parcel: Parcel) -> Any:
        """One transfer.  None when it is acknowledged, else the status."""
        seconds = self._limits.deadline(parcel.manifest.size)

        def frames() -> Iterator[bytes]:
            """The manifest, then chunks, each copied when its turn comes."""
            yield parcel.manifest.encode()
            for chunk in parcel.chunks:
                watched.move()
                yield b"".join(chunk)

        channel, code = self.channel, None
        # Not as a future, for which gRPC starts one more thread: where there is none, a channel
        # waits for it for ever, even to be closed.
        with self._guard.watch(channel.close, seconds) as watched:
            try:
                channel.stream_unary(DELIVER)(frames(), timeout=seconds)
            except grpc.RpcError as error:
                code = error.code()
            except ValueError:  # the channel was closed
                code = grpc.StatusCode.CANCELLED
                watched.ended = True
            except RuntimeError as error:  # no thread for the chunks; the call is left half begun
                code = grpc.StatusCode.CANCELLED
                watched.ended = True
                self._fail(error)
        if watched.ended:
            self._reconnect(channel)
        return code

    def _reconnect(self, channel: grpc.Channel) -> None:
        channel.close()
        with self._change:
            if not self._over:
                self.channel = self._connect()
