"""When nodes stop waiting."""

import math
from collections.abc import Callable
from functools import partial

from basil.engine.process import Process
from basil.protocol.requests import Receive

At = Callable[[float, int, Callable[[], None]], None]
"""Let something happen: when, for which node, what."""


class Deadlines:
    """Deadlines are set and met by the dozen in every turn, and hardly one ever passes.

    So a node is only filed under the tick that its deadline falls into, unless it will be looked at
    before.  When that tick comes, a deadline that still stands becomes an event, and one that has
    been put off is filed anew.
    """

    def __init__(self, at: At, expire: Callable[[Process, Receive | None], None]) -> None:
        self._at = at
        self._expire = expire
        self._filed: dict[int, list[Process]] = {}  # by tick
        self._tick = 0.0  # its length: that of the first deadline

    def set(self, process: Process, until: float, now: float) -> None:
        if until >= process.alarm:
            return
        tick = self._tick
        if not tick:
            tick = self._tick = until - now
        number = int(until / tick)
        if number * tick <= now:
            self._at(until, process.node, partial(self._expire, process, process.receive))
            return
        process.alarm = number * tick
        filed = self._filed.get(number)
        if filed is not None:
            filed.append(process)
        else:
            self._filed[number] = [process]
            self._at(process.alarm, -1, partial(self._open, number, process.alarm))

    def _open(self, number: int, now: float) -> None:
        for process in dict.fromkeys(self._filed.pop(number)):
            process.alarm = math.inf
            if process.receive is not None:
                self.set(process, max(now, process.receive.until), now)
