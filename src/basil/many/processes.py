"""Independent pieces of work in processes of this machine.

None ends the others: neither one that raises nor one that takes its process down with it.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from typing import Any, Generic, TypeVar

LOOK = 0.5  # seconds between two looks at what is being done
DEATHS = 2  # of processes that had nothing but this piece to do
DIED = "its process died again and again; the same command tries it once more"
P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Ended(Generic[R]):
    """What became of the piece with this number: a result, or why there is none."""

    number: int
    result: R | None
    error: str = ""


def in_processes(
    work: Callable[[P], R],
    pieces: Sequence[P],
    processes: int,
    ready: Callable[[], None],
    watch: Callable[[Sequence[int]], None] = lambda running: None,
) -> Iterator[Ended[R]]:
    """Do all pieces, in order of finishing.  `ready` prepares a process, `watch` hears who works.

    When a process dies, nobody knows which piece it had.  So each that was being done is done again
    with a process to itself.  One whose own process dies `DEATHS` times is given up.
    """
    waiting, suspects = list(range(len(pieces))), list[int]()
    at_work: list[int] = []
    deaths: Counter[int] = Counter()

    def see(running: Sequence[int]) -> None:
        at_work[:] = running
        watch(running)

    while waiting or suspects:
        alone = bool(suspects)
        left = [suspects.pop()] if alone else waiting
        at_work.clear()
        for ended in _pool(work, {i: pieces[i] for i in left}, processes, ready, see):
            left.remove(ended.number)
            yield ended
        # What is left was lost with a process.
        if alone:
            for i in left:
                deaths[i] += 1
                if deaths[i] < DEATHS:
                    suspects.append(i)
                else:
                    yield Ended(i, None, DIED)
        else:
            # Before the first look everybody is under suspicion.
            suspects = [i for i in left if i in at_work] or left
            waiting = [i for i in left if i not in suspects]


def _pool(
    work: Callable[[P], R],
    pieces: dict[int, P],
    processes: int,
    ready: Callable[[], None],
    watch: Callable[[Sequence[int]], None],
) -> Iterator[Ended[R]]:
    """The pieces in one pool, which ends early when one of its processes dies."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(pieces)), context, _begin, (ready,)) as pool:
        try:
            with _undisturbed():
                futures: dict[Future[R], int] = {pool.submit(work, pieces[i]): i for i in pieces}
            while futures:
                with _postponed(signal.SIGINT, signal.SIGTERM):
                    done, _ = wait(futures, timeout=LOOK, return_when=FIRST_COMPLETED)
                found = [_ended(futures.pop(future), future) for future in done]
                yield from (ended for ended in found if ended is not None)
                if None in found:
                    return
                watch([i for future, i in futures.items() if future.running()])
        except (KeyboardInterrupt, GeneratorExit):  # stopped here, or where the results go
            # A terminal has told the workers too; a signal to this process alone has not.
            for worker in multiprocessing.active_children():
                if worker.pid is not None:
                    os.kill(worker.pid, signal.SIGINT)
            pool.shutdown(wait=True, cancel_futures=True)
            raise


@contextmanager
def _postponed(*signals: signal.Signals) -> Iterator[None]:
    """These come at the end of what is done here.

    In the middle of it KeyboardInterrupt can leave a lock half taken, and become another exception.
    """
    came: list[int] = []
    main = threading.current_thread() is threading.main_thread()  # no other may choose handlers
    before = {
        each: signal.signal(each, lambda number, frame: came.append(number))
        for each in (signals if main else ())
    }
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
        if came:
            signal.raise_signal(came[0])


@contextmanager
def _undisturbed() -> Iterator[None]:
    """What is begun here hears of Ctrl-C once it is ready; before, it would die with a traceback.

    A new process has its parent's mask, and what is held back by it is not lost.
    """
    resource_tracker.ensure_running()  # beginning it would lift the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(ready: Callable[[], None]) -> None:
    """What a new process does first."""
    threading.Thread(target=_follow, daemon=True).start()
    ready()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _follow() -> None:
    """Nobody takes the result of a process whose parent is gone; its last checkpoint stays."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _ended(number: int, future: Future[Any]) -> Ended[Any] | None:
    try:
        return Ended(number, future.result())
    except BrokenProcessPool:
        return None
    except Exception as error:
        return Ended(number, None, "".join(traceback.format_exception_only(error)).strip())
