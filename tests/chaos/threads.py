"""Time, threads and locks of a simulated world: greenlets that one seed drives.

A thread runs until it waits; then the world picks the next one whose time has come.  Nothing
sleeps: when all wait, the clock jumps.  Which of those that are ready goes first, and who is
interrupted where it takes a lock, is drawn from the seed.  So a night is the same each time.

A node that is killed is never resumed: none of its `finally` blocks runs while the world goes on.
"""

import heapq
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from itertools import count
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

INSTANT = 1e-6  # seconds
BETWEEN = 20  # locks that a thread takes, on average, before it is interrupted at one


class Task:
    """A thread of a node; `node` is None for what belongs to the world itself."""

    def __init__(self, world: "World", work: Callable[[], object], node: int | None) -> None:
        self.world, self.node = world, node
        self.done = self.woken = self.dead = False
        self.waiters: list[Task] = []
        self._work = work
        self._number = 0  # of the wait that it is in
        self.greenlet = greenlet(self._run, parent=world.hub)

    def _run(self) -> None:
        try:
            self._work()
        except GreenletExit:
            pass
        except Exception as error:
            self.world.errors.append((self.node, error))
        self.done = True
        for waiter in self.waiters:
            self.world.wake(waiter)


class Clock:
    """A node's: how fast it goes, and what it has jumped by."""

    def __init__(self, rate: float = 1.0, offset: float = 0.0) -> None:
        self.rate, self.offset = rate, offset

    def shows(self, now: float) -> float:
        return now * self.rate + self.offset


class World:
    """One night: its clock, its threads, and who is alive."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.hub = getcurrent()
        self.task: Task | None = None  # the one that runs
        self.lives: dict[int | None, int] = {}  # how often a node was killed
        self.clocks: dict[int | None, Clock] = {}
        self.frozen: dict[int | None, float] = {}  # until when nothing of a node runs
        self.crowded: set[int | None] = set()  # nodes on machines that start no more threads
        self.errors: list[tuple[int | None, BaseException]] = []
        self.over = False
        self._queue: list[tuple[float, float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = count()
        self._tasks: dict[int | None, list[Task]] = {}
        self._locks = 0  # until somebody is interrupted

    # -- the clock -----------------------------------------------------------------------------

    def clock(self) -> Clock:
        """Of the node that asks."""
        return self.clocks.get(self.node) or TRUE

    def monotonic(self) -> float:
        return self.clock().shows(self.now)

    def at(self, moment: float, work: Callable[..., object], *args: Any) -> None:
        moment = max(moment, self.now)
        heapq.heappush(self._queue, (moment, self.random.random(), next(self._numbers), work, args))

    def run(self, until: float, ended: Callable[[], bool] = lambda: False) -> None:
        """Let all go on until then, or until nothing is left to do."""
        assert getcurrent() is self.hub
        while self._queue and not ended():
            moment, _, _, work, args = heapq.heappop(self._queue)
            if moment > until:
                break
            self.now = moment
            work(*args)

    # -- threads -------------------------------------------------------------------------------

    @property
    def node(self) -> int | None:
        return None if self.task is None else self.task.node

    def spawn(self, work: Callable[[], object], node: int | None, delay: float = 0.0) -> Task:
        task = Task(self, work, node)
        self._tasks.setdefault(node, []).append(task)
        self.at(self.now + delay, self._resume, task, 0)
        return task

    def _resume(self, task: Task, number: int) -> None:
        if task.done or task.dead or task._number != number:
            return
        if self.frozen.get(task.node, 0.0) > self.now:
            self.at(self.frozen[task.node], self._resume, task, number)
            return
        task._number += 1
        self.task = task
        task.greenlet.switch()
        self.task = None

    def park(self, seconds: float | None = None) -> bool:
        """Wait to be woken, or for so long by this node's clock.  Was it woken?"""
        task = self.task
        if task is None or task.dead or self.over:
            raise GreenletExit  # of a dead node, when its remains are collected
        task.woken = False
        if seconds is not None:
            # However short: a loop that waits for a deadline must get past it.
            real = max(INSTANT, seconds / self.clock().rate)
            self.at(self.now + real, self._resume, task, task._number)
        self.hub.switch()
        if task.dead or self.over:
            raise GreenletExit
        return task.woken

    def wake(self, task: Task) -> None:
        if not task.done and not task.dead:
            task.woken = True
            self.at(self.now, self._resume, task, task._number)

    def maybe_yield(self) -> None:
        self._locks -= 1
        if self._locks < 0:
            self._locks = self.random.randrange(2 * BETWEEN)
            self.park(0.0)

    def kill(self, node: int) -> None:
        """As SIGKILL: nothing of it runs any more."""
        self.lives[node] = self.lives.get(node, 0) + 1
        self.frozen.pop(node, None)
        for task in self._tasks.get(node, ()):
            task.dead = True

    def close(self) -> None:
        """What still waits ends, as the greenlets are collected; nobody hears of it."""
        self.over = True
        self._queue.clear()
        tasks, self._tasks = self._tasks, {}
        for task in (task for some in tasks.values() for task in some):
            if not task.done and task.greenlet:
                with suppress(Exception):  # it is gone, and was to be
                    task.greenlet.throw(GreenletExit)


TRUE = Clock()


class Lock(AbstractContextManager["Lock"]):
    """Also an RLock: whoever holds it may take it again."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._holder: Task | None = None
        self._depth = 0
        self._waiters: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        world = self._world
        task = world.task
        if task is None or task.dead or world.over:
            return True
        world.maybe_yield()
        while self._holder is not None and self._holder is not task and not self._holder.dead:
            if not blocking:
                return False
            self._waiters.append(task)
            world.park(None if timeout < 0 else timeout)
        self._holder, self._depth = task, self._depth + 1 if self._holder is task else 1
        return True

    def release(self) -> None:
        if self._holder is not None and self._holder is self._world.task:
            self._depth -= 1
            if self._depth == 0:
                self.free()

    def free(self) -> int:
        depth, self._holder, self._depth = self._depth, None, 0
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                self._world.wake(waiter)
        return depth

    def __enter__(self) -> "Lock":
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class Condition(AbstractContextManager["Condition"]):
    def __init__(self, world: World) -> None:
        self._world, self._lock = world, Lock(world)
        self._waiters: list[Task] = []

    def __enter__(self) -> "Condition":
        self._lock.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        task = self._world.task
        assert task is not None
        self._waiters.append(task)
        depth = self._lock.free()
        woken = self._world.park(timeout)
        if task in self._waiters:
            self._waiters.remove(task)
        self._lock.acquire()
        self._lock._depth = depth
        return woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end = None if timeout is None else self._world.monotonic() + timeout
        while not (result := predicate()):
            left = None if end is None else end - self._world.monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify_all(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            self._world.wake(waiter)

    notify = notify_all


class Event:
    def __init__(self, world: World) -> None:
        self._world, self._set = world, False
        self._waiters: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            self._world.wake(waiter)

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            task = self._world.task
            assert task is not None
            self._waiters.append(task)
            if not self._world.park(timeout):
                self._waiters.remove(task)
        return self._set


class Semaphore:
    def __init__(self, world: World, value: int = 1) -> None:
        self._world, self._value = world, value

    def acquire(self, blocking: bool = True) -> bool:
        while self._value <= 0:
            if not blocking:
                return False
            self._world.park(0.001)
        self._value -= 1
        return True

    def release(self) -> None:
        self._value += 1


class Thread:
    """Of the node whose thread makes it."""

    def __init__(
        self,
        world: World,
        target: Callable[..., object],
        args: tuple[Any, ...] = (),
        name: str = "",
        daemon: bool = True,
    ) -> None:
        self._world, self._target, self._args = world, target, args
        self._task: Task | None = None

    def start(self) -> None:
        if self._world.node in self._world.crowded:
            raise RuntimeError("can't start new thread")
        self._task = self._world.spawn(lambda: self._target(*self._args), self._world.node)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done

    def join(self, timeout: float | None = None) -> None:
        task, me = self._task, self._world.task
        while task is not None and me is not None and not task.done:
            task.waiters.append(me)
            if not self._world.park(timeout) and timeout is not None:
                return
