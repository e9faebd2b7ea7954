"""What has arrived and waits for the protocol; on disk, too, until a checkpoint has it.

A message is written to a file of its own before its sender is told that it is here.  A checkpoint
says up to which one the protocol had taken them in; the files up to there are then removed.  A node
that was killed finds the rest when it starts again: it is told again what it had been told.  (These
files are not forced to the disk one by one.  A power cut may lose the newest; to a protocol that is
a message that did not come.)  What one sender has there is bounded: of a flood only the beginning
survives a crash.
"""

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path

from torch import Tensor

from basil.errors import UserError
from basil.host import host
from basil.peer.run.liveness import Clock
from basil.protocol.requests import Arrival, Body, Missing
from basil.record import checkpoint

BLOCK = 4096  # bytes that a file has beside its tensor, at most
SUFFIX = ".safetensors"


class Stopped(Exception):
    """The node was told to stop."""


class Inbox:
    """The messages of one stage, in the order in which they came.

    `folder`: where they are kept until they are taken in; None for a stage that is not taken up
    again.  `most`: bytes that each sender may have there.  `hold`: says of an arrival that it has
    to wait for others (see `lockstep`).
    """

    def __init__(self, clock: Clock, folder: Path | None = None, most: float = inf) -> None:
        self.clock = clock
        self._folder, self._most = folder, most
        self._files: dict[int, tuple[int, int]] = {}  # number -> sender and bytes
        self.hold: Callable[[Arrival], bool] = lambda arrival: False
        # With each arrival what it came in: the transport counts a message as waiting while
        # somebody holds on to it, and lets no sender have many of them.
        self._queue: deque[tuple[int, Arrival, object]] = deque()
        self._changed = host.condition()
        # Of the newest message: whatever an earlier life has left is older.
        self._number = max((number for number, _ in _files(folder)), default=0)
        self._stopped = False
        self._news = False  # has somebody been heard of who is far ahead?
        self.heard: dict[int, int] = {}  # sender -> the latest round in which it spoke
        self.given: dict[int, int] = {}  # the same, of what the protocol has been given

    # -- from the network --------------------------------------------------------------------

    def put(self, sender: int, k: int, body: Body, envelope: object = None) -> None:
        """Called by the transport's threads; returns once it is kept."""
        arrival = Arrival(sender, k, body, self.clock.now())
        with self._changed:
            self._number += 1
            if self._folder is not None and self._has_room(sender, _bytes(body)):
                with suppress(OSError):  # it is here all the same, until a crash
                    path = self._folder / f"{self._number:09d}{SUFFIX}"
                    checkpoint.save(path, [sender, k, body])
                    self._files[self._number] = sender, _bytes(body)
            self._insert(self._number, arrival, envelope)

    def note(self, sender: int, k: int) -> None:
        """It is so far ahead that its message was not taken.  How far is worth knowing."""
        with self._changed:
            if k > self.heard.get(sender, 0):
                self.heard[sender], self._news = k, True
                self._changed.notify_all()

    def _has_room(self, sender: int, size: int) -> bool:
        return size + sum(n for who, n in self._files.values() if who == sender) <= self._most

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

    def take(self, until: float) -> Arrival | Missing | None:
        """The next one; `Missing` once the protocol's clock is past `until` and all is handed out
        that came before; None if one should look how far the others are.
        """
        with self._changed:
            while not self._stopped:
                left = self.clock.real_seconds_until(until)
                # Whoever never stops sending must not put off what is due.
                here = [i for i, (_, a, _) in enumerate(self._queue) if left > 0 or a.time <= until]
                ready = (i for i in here if not self.hold(self._queue[i][1]))
                # What was held back is not waited for any longer than anything else.
                place = next(ready, here[0] if left <= 0 and here else None)
                if place is not None:
                    _, arrival, _ = self._queue[place]
                    del self._queue[place]
                    known = self.given.get(arrival.sender, 0)
                    self.given[arrival.sender] = max(arrival.round, known)
                    return arrival
                if left <= 0:
                    return Missing(self.clock.now())
                if self._news:
                    self._news = False
                    return None
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
                with self._changed:
                    self._files.pop(number, None)

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
                self._files[number] = sender, _bytes(body)
                self._insert(number, Arrival(sender, k, body, self.clock.now()), None)


def _bytes(body: Body) -> int:
    """On the disk."""
    return BLOCK + (body.nbytes if isinstance(body, Tensor) else 0)


def _files(folder: Path | None) -> list[tuple[int, Path]]:
    """By their numbers."""
    if folder is None or not folder.is_dir():
        return []
    stems = (name.removesuffix(SUFFIX) for name in os.listdir(folder) if name.endswith(SUFFIX))
    return sorted((int(stem), folder / (stem + SUFFIX)) for stem in stems if stem.isdecimal())
