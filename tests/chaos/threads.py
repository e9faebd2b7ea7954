"""Time, threads and locks of a simulated world: greenlets that one seed drives.

A thread runs until it waits; then the world picks the next one whose time has come.  Nothing
sleeps: when all wait, the clock jumps.  Which of those that are ready goes first, and who is
interrupted where it takes a lock, is drawn from the seed.  So a night is the same each time.

A node that is killed is never resumed: none of its `finally` blocks runs while the world goes on.
"""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from heapq import heappop, heappush
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
        self.greenlet: greenlet | None = None  # once it has begun

    def run(self) -> None:
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
        self._order = count().__next__  # of two with the same draw, who came first
        self._draw = self.random.random
        self._tasks: dict[int | None, list[Task]] = {}
        self._idle: list[greenlet] = []  # their threads have ended
        self.locks = 0  # until somebody is interrupted

    # -- the clock -----------------------------------------------------------------------------

    def monotonic(self) -> float:
        """By the clock of the node that asks."""
        clock = self.clocks.get(self.node)
        return self.now if clock is None else clock.shows(self.now)

    def at(self, moment: float, work: Callable[..., object], *args: Any) -> None:
        if moment < self.now:
            moment = self.now
        heappush(self._queue, (moment, self._draw(), self._order(), work, args))

    def run(self, until: float, ended: Callable[[], bool] = lambda: False) -> None:
        """Let all go on until then, or until nothing is left to do."""
        assert getcurrent() is self.hub
        queue = self._queue
        while queue and not ended():
            moment, _, _, work, args = heappop(queue)
            if moment > until:
                break
            self.now = moment
            work(*args)

    # -- threads -------------------------------------------------------------------------------

    @property
    def node(self) -> int | None:
        task = self.task
        return None if task is None else task.node

    def spawn(self, work: Callable[[], object], node: int | None, delay: float = 0.0) -> Task:
        task = Task(self, work, node)
        self._tasks.setdefault(node, []).append(task)
        self.at(self.now + delay, self._resume, task, 0)
        return task

    def _resume(self, task: Task, number: int) -> None:
        if task.done or task.dead or task._number != number:
            return
        if self.frozen and self.frozen.get(task.node, 0.0) > self.now:
            self.at(self.frozen[task.node], self._resume, task, number)
            return
        task._number += 1
        self.task = task
        if task.greenlet is None:
            idle = self._idle
            task.greenlet = idle.pop() if idle else greenlet(self._threads, parent=self.hub)
        task.greenlet.switch()
        self.task = None

    def _threads(self) -> None:
        """One after the other: a new greenlet costs ten times as much as a switch to one."""
        while not self.over:
            assert self.task is not None
            self.task.run()
            self._idle.append(getcurrent())
            self.hub.switch()

    def park(self, seconds: float | None = None) -> bool:
        """Wait to be woken, or for so long by this node's clock.  Was it woken?"""
        task = self.task
        if task is None or task.dead or self.over:
            raise GreenletExit  # of a dead node, when its remains are collected
        task.woken = False
        if seconds is not None:
            clock = self.clocks.get(task.node)
            real = seconds if clock is None else seconds / clock.rate
            # However short: a loop that waits for a deadline must get past it.
            self.at(self.now + max(INSTANT, real), self._resume, task, task._number)
        self.hub.switch()
        if task.dead or self.over:
            raise GreenletExit
        return task.woken

    def wake(self, task: Task) -> None:
        if not task.done and not task.dead:
            task.woken = True
            self.at(self.now, self._resume, task, task._number)

    def interrupt(self) -> None:
        """Who runs, where it takes a lock."""
        self.locks = self.random.randrange(2 * BETWEEN)
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
        for each in self._idle:
            each.switch()


class Lock(AbstractContextManager[bool]):
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
        world.locks -= 1
        if world.locks < 0:
            world.interrupt()
        while self._holder is not None and self._holder is not task and not self._holder.dead:
            if not blocking:
                return False
            self._waiters.append(task)
            world.park(None if timeout < 0 else timeout)
        self._depth = self._depth + 1 if self._holder is task else 1
        self._holder = task
        return True

    def release(self, *error: object) -> None:
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

    __enter__, __exit__ = acquire, release


class Condition(Lock):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._sleepers: list[Task] = []

    def wait(self, timeout: float | None = None) -> bool:
        task = self._world.task
        assert task is not None
        self._sleepers.append(task)
        depth = self.free()
        woken = self._world.park(timeout)
        if task in self._sleepers:
            self._sleepers.remove(task)
        self.acquire()
        self._depth = depth
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
        sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            self._world.wake(sleeper)

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
