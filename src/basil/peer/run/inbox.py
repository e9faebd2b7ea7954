"""What has arrived and waits for the protocol; on disk, too, until a checkpoint has it.

A message is written to a file of its own before its sender is told that it is here.  A checkpoint
says up to which one the protocol had taken them in; the files up to there are then removed.  A node
that was killed finds the rest when it starts again: it is told again what it had been told.  (These
files are not forced to the disk one by one.  A power cut may lose the newest; to a protocol that is
a message that did not come.)
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from basil.errors import UserError
from basil.peer.run.liveness import Clock
from basil.protocol.requests import Arrival, Body, Missing
from basil.record import checkpoint


class Stopped(Exception):
    """The node was told to stop."""


class Inbox:
    """The messages of one stage, in the order in which they came.

    `folder`: where they are kept until they are taken in; None for a stage that is not taken up
    again.  `hold`: says of an arrival that it has to wait for others (see `lockstep`).
    """

    def __init__(self, clock: Clock, folder: Path | None = None) -> None:
        self.clock = clock
        self._folder = folder
        self.hold: Callable[[Arrival], bool] = lambda arrival: False
        # With each arrival what it came in: the transport counts a message as waiting while
        # somebody holds on to it, and lets no sender have many of them.
        self._queue: deque[tuple[int, Arrival, object]] = deque()
        self._changed = threading.Condition()
        # Of the newest message: whatever an earlier life has left is older.
        self._number = max((number for number, _ in _files(folder)), default=0)
        self._stopped = False
        self.heard: dict[int, int] = {}  # sender -> the latest round in which it spoke
        self.given: dict[int, int] = {}  # the same, of what the protocol has been given

    # -- from the network --------------------------------------------------------------------

    def put(self, sender: int, k: int, body: Body, envelope: object = None) -> None:
        """Called by the transport's threads; returns once it is kept."""
        arrival = Arrival(sender, k, body, self.clock.now())
        with self._changed:
            self._number += 1
            if self._folder is not None:
                with suppress(OSError):  # it is here all the same, until a crash
                    path = self._folder / f"{self._number:09d}.safetensors"
                    checkpoint.save(path, [sender, k, body])
            self._insert(self._number, arrival, envelope)

    def _insert(self, number: int, arrival: Arrival, envelope: object) -> None:
        self._queue.append((number, arrival, envelope))
        known = self.heard.get(arrival.sender, 0)
        self.heard[arrival.sender] = max(known, arrival.round)
        self._changed.notify_all()

    def stop(self) -> None:
        """Those who wait are told `Stopped`."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def rounds(self) -> list[int]:
        """The latest of each sender; a copy, since more may be heard from while it is read."""
        with self._changed:
            return list(self.heard.values())

    # -- to the protocol ---------------------------------------------------------------------

    def take(self, until: float) -> Arrival | Missing:
        """The next one; `Missing` once the protocol's clock is past `until`."""
        with self._changed:
            while not self._stopped:
                left = self.clock.real_seconds_until(until)
                ready = (i for i, (_, a, _) in enumerate(self._queue) if not self.hold(a))
                # What was held back is not waited for any longer than anything else.
                place = next(ready, 0 if left <= 0 and self._queue else None)
                if place is not None:
                    _, arrival, _ = self._queue[place]
                    del self._queue[place]
                    known = self.given.get(arrival.sender, 0)
                    self.given[arrival.sender] = max(arrival.round, known)
                    return arrival
                if left <= 0:
                    return Missing(self.clock.now())
                self._changed.wait(left)
            raise Stopped

    # -- across a restart --------------------------------------------------------------------

    def mark(self) -> list[int]:
        """For a checkpoint: the newest message, and those up to it that still wait."""
        with self._changed:
            return [self._number, *(number for number, *_ in self._queue)]

    def forget(self, mark: list[int]) -> None:
        """Remove what a checkpoint has; call it once that is on the disk."""
        if self._folder is None:
            return
        newest, waiting = mark[0], set(mark[1:])
        for number, file in _files(self._folder):
            if number <= newest and number not in waiting:
                file.unlink(missing_ok=True)

    def restore(self, mark: list[int]) -> None:
        """Queue again what came after a checkpoint, and what it had waiting."""
        assert self._folder is not None
        newest, waiting = (mark[0], set(mark[1:])) if mark else (0, set[int]())
        with self._changed:
            self._number = max(self._number, newest)
            here = {number for number, *_ in self._queue}  # they came in this life
            for number, file in _files(self._folder):
                if number in here:
                    continue
                if number <= newest and number not in waiting:
                    file.unlink()
                    continue
                try:
                    sender, k, body = checkpoint.load(file)
                except UserError:  # cut off by a power failure
                    file.unlink()
                    continue
                self._insert(number, Arrival(sender, k, body, self.clock.now()), None)


def _files(folder: Path | None) -> list[tuple[int, Path]]:
    if folder is None:
        return []
    return sorted((int(f.stem), f) for f in folder.glob("*.safetensors") if f.stem.isdecimal())
