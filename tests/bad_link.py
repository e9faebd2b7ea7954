"""A link between two nodes that a test can slow down, freeze in the middle, and mend."""

import socket
import threading
import time
from collections.abc import Callable
from functools import partial


class BadLink:
    """Forwards TCP from a port of its own to another; `rate` in bytes a second, None: as it comes.

    `frozen`: nothing passes any more and nobody is told, as when a cable is pulled.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self.rate: float | None = None
        self.frozen = False
        self.held_up = 0.0  # seconds that bytes had to wait in it, over all connections
        self._lost = 0  # connections with a lower number stay frozen
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def close(self) -> None:
        for end in (self._listener, *self._open):
            end.close()

    def mend(self) -> None:
        """New connections pass; the frozen ones stay frozen, as after a change of route."""
        self._lost = len(self._open)
        self.frozen = False

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            number = len(self._open)
            self._open += [near, far]
            self._start(partial(self._pump, near, far, number))
            self._start(partial(self._pump, far, near, number))

    def _pump(self, source: socket.socket, sink: socket.socket, number: int) -> None:
        try:
            while data := source.recv(65536):
                while self.frozen or number < self._lost:
                    self._wait(0.02)
                rate = self.rate
                if rate is not None:
                    self._wait(len(data) / rate)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def _wait(self, seconds: float) -> None:
        self.held_up += seconds
        time.sleep(seconds)

    def _start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()
