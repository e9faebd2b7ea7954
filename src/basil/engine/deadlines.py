"""Deadlines of nodes that wait for a message.

They are set by the dozen in every turn, and hardly one ever passes.  So no deadline becomes an
event at once: its node is looked at after a third of the time.  By then it has mostly been told
what it waited for, and later deadlines that were set in between have cost nothing.  One that still
stands is an event from then on.
"""

import math
from collections.abc import Callable
from functools import partial

from basil.engine.process import Process

At = Callable[[float, int, Callable[[], None]], None]
"""Let something happen: when, to which node, what."""


class Deadlines:
    """`expire`: a node's deadline has passed."""

    def __init__(self, at: At, expire: Callable[[Process], None]) -> None:
        self._at, self._expire = at, expire

    def set(self, process: Process, now: float) -> None:
        """It waits in a `Receive` from now on."""
        assert process.receive is not None
        until = process.receive.until
        if until < process.alarm:
            self._look(process, now + (until - now) / 3)

    def _look(self, process: Process, time: float) -> None:
        process.alarm = time
        self._at(time, process.node, partial(self._sound, process, time))

    def _sound(self, process: Process, now: float) -> None:
        if process.alarm != now:
            return  # an earlier one has taken its place
        process.alarm = math.inf
        if process.receive is None:
            return
        if process.receive.until > now:
            self._look(process, process.receive.until)
        else:
            self._expire(process)
