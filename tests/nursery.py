"""Real rings of real processes: a process that has PyTorch loaded and forks nodes on request.

As a program it reads one JSON object in a line, forks a node (or waits for one), and answers.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__)


class Nursery:
    """Starts nodes; ends those that a test has left behind."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _do(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, folder: Path, words: Iterable[str], **faults: Any) -> int:
        """`faults`: seconds by which its wall clock is wrong (`skew`); a disk that is `full`."""
        pid: int = self._do(folder=str(folder), words=list(words), **faults)
        return pid

    def poll(self, pid: int) -> int | None:
        """The exit code of a node that has ended."""
        code: int | None = self._do(poll=pid)
        return code

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Ring:
    """The nodes of one ring."""

    def __init__(self, nursery: Nursery, folder: Path, nodes: int) -> None:
        self.nursery, self.folder, self.nodes = nursery, folder, nodes
        self.pids: dict[int, int] = {}
        self.codes: dict[int, int] = {}

    def node(self, i: int) -> Path:
        return self.folder / f"node-{i}"

    def start(self, i: int, *words: str, **faults: Any) -> None:
        shared = ["--patience", "0.4", "--window", "20", "--linger", "8"]
        self.pids[i] = self.nursery.start(self.node(i), [*shared, *words], **faults)
        self.codes.pop(i, None)

    def start_all(self, *words: str, but: Iterable[int] = ()) -> None:
        for i in sorted(set(range(self.nodes)) - set(but)):
            self.start(i, *words)

    def signal(self, i: int, number: int) -> None:
        os.kill(self.pids[i], number)

    def kill(self, i: int) -> None:
        self.signal(i, signal.SIGKILL)
        self.wait([i])

    def wait(self, which: Iterable[int] | None = None, seconds: float = 60.0) -> dict[int, int]:
        """Their exit codes, once they have all ended."""
        todo = set(self.pids if which is None else which)
        end = time.monotonic() + seconds
        while todo:
            for i in list(todo):
                code = self.nursery.poll(self.pids[i])
                if code is not None:
                    self.codes[i] = code
                    todo.discard(i)
            if todo:
                assert time.monotonic() < end, self.story(todo)
                time.sleep(0.02)
        return {i: self.codes[i] for i in (self.pids if which is None else which)}

    def round(self, i: int) -> int:
        """The latest that a node has finished."""
        try:
            status = json.loads((self.node(i) / "status.json").read_text())
        except FileNotFoundError:
            return 0
        return int(status["round"])

    def until(self, condition: Callable[[], bool], seconds: float = 40.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.story(self.pids)
            time.sleep(0.01)

    def until_round(self, k: int, i: int = 0) -> None:
        self.until(lambda: self.round(i) >= k)

    def story(self, which: Iterable[int]) -> str:
        """What the nodes said, for a test that fails."""
        return "\n".join(f"-- {i}\n{self.log(i)}" for i in sorted(which))

    def log(self, i: int) -> str:
        return (self.node(i) / "node.log").read_text()

    def summary(self, i: int) -> dict[str, Any]:
        return json.loads((self.node(i) / "run" / "summary.json").read_text())

    def accuracy(self, which: Iterable[int]) -> float:
        """The worst of some nodes."""
        return min(self.summary(i)["accuracy"]["worst"] for i in which)

    def end(self) -> None:
        """End what is left."""
        for i, pid in self.pids.items():
            if self.nursery.poll(pid) is None:
                os.kill(pid, signal.SIGKILL)
                os.kill(pid, signal.SIGCONT)
                self.wait([i])


def _serve() -> None:
    import datetime

    import torch

    import basil.peer.run.local_ring as up
    from basil import data
    from basil.cli import main
    from basil.host import host
    from basil.peer.members import identity
    from basil.record import run_folder

    torch.set_num_threads(1)
    data.load("digits", 0)
    codes: dict[int, int | None] = {}

    def prepare(skew: float = 0.0, full: bool = False) -> None:
        """A wrong wall clock, wherever Basil reads it; a disk that does not take final models.

        (gRPC's own clock must go with the system's, or it would wait for days.)
        """
        if full:

            def refuse(*_: object) -> None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            run_folder.save_tensors = refuse  # type: ignore[assignment,attr-defined]
        if skew:
            host.time = lambda: time.time() + skew

            class Skewed(datetime.datetime):
                @classmethod
                def now(cls, tz: datetime.tzinfo | None = None) -> "Skewed":
                    return cls.fromtimestamp(host.time(), tz)

            identity.datetime = Skewed  # type: ignore[attr-defined]

    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            pid = request["poll"]
            if codes[pid] is None:
                done, state = os.waitpid(pid, os.WNOHANG)
                codes[pid] = os.waitstatus_to_exitcode(state) if done else None
            print(json.dumps(codes[pid]), flush=True)
            continue
        folder = Path(request.pop("folder"))
        words = ["node", "--dir", str(folder), *request.pop("words")]
        pid = up.fork(main, words, folder / up.LOG, partial(prepare, **request))
        codes[pid] = None
        print(pid, flush=True)
    for pid, code in codes.items():
        if code is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    _serve()
