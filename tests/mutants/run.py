"""Would the tests notice?  Small faults, planted one at a time in a copy of src.

    python tests/mutants/run.py [--only PART] [--jobs N]      (make mutants ONLY=PART)

`mutants.toml` lists them: a text of a file, what takes its place, and the test files that must
then fail.  Nothing is changed in the working tree.  The tests pass on a copy without any fault
first, or a failure would say nothing.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")
R = TypeVar("R")
ROOT = Path(__file__).parents[2]
PACKAGE = Path("src/basil")
KILLED, SURVIVED, STALE, BROKEN = "killed", "SURVIVED", "STALE", "BROKEN"
LIMIT = 600  # seconds; who makes the tests hang has been noticed, too
FAILED = 1  # pytest's exit code for failed tests; others mean that it could not run them
# Half of the time would go into imports: a server does them once, and forks for each mutant.
SERVER = get_context("forkserver")
SERVER.set_forkserver_preload(["numpy", "pytest", "torch"])


@dataclass(frozen=True)
class Mutant:
    """One fault: where it is, what is wrong then, and who should notice."""

    path: str
    what: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.path}: {self.what}"

    def planted(self, text: str) -> str | None:
        """The file's text with the fault; None if the list no longer fits the code."""
        return text.replace(self.old, self.new) if text.count(self.old) == 1 else None


def read(file: Path) -> list[Mutant]:
    found = []
    for part in tomllib.loads(file.read_text(encoding="utf-8"))["file"]:
        tests = tuple(f"tests/{test}" for test in part["tests"])
        for what, (old, new) in part["mutants"].items():
            found.append(Mutant(part["path"], what, old, new, tests))
    return found


@dataclass
class Runner:
    """Runs tests on copies of src; `stop` ends those that are under way."""

    root: Path
    scratch: Path
    running: set[ForkServerProcess] = field(default_factory=set)
    stopped: bool = False

    def outcome(self, mutant: Mutant) -> str:
        text = mutant.planted((self.root / PACKAGE / mutant.path).read_text(encoding="utf-8"))
        if text is None:
            return STALE
        code = self.tests(mutant.tests, {mutant.path: text})
        return {0: SURVIVED, FAILED: KILLED, None: KILLED}.get(code, BROKEN)

    def tests(self, tests: Iterable[str], changed: dict[str, str]) -> int | None:
        """pytest's exit code with some files changed; None if it takes too long."""
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            shutil.copytree(self.root / "src", Path(folder) / "src")
            for path, text in changed.items():
                (Path(folder) / PACKAGE / path).write_text(text, encoding="utf-8")
            if self.stopped:
                return None
            process = SERVER.Process(target=_pytest, args=(self.root, folder, tuple(tests)))
            process.start()
            self.running.add(process)
            if self.stopped:  # in between
                _end(process)
            process.join(LIMIT)
            self.running.discard(process)
            if process.is_alive():
                _end(process)
                return None
            return process.exitcode

    def stop(self) -> None:
        self.stopped = True
        for process in list(self.running):
            _end(process)


def _pytest(root: Path, folder: str, tests: tuple[str, ...]) -> None:
    """In a process of its own, and in a group with all that the tests start."""
    os.setsid()
    os.chdir(root)
    source = f"{folder}/src"
    sys.path.insert(0, source)
    os.environ |= {
        "PYTHONPATH": source,
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": f"{folder}/hypothesis",
    }
    sys.dont_write_bytecode = True
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    # Hypothesis draws the same examples in every run: a score is not a matter of luck.
    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    options += ["--basetemp", f"{folder}/pytest", *tests]
    code = 3  # an error of pytest's own
    with suppress(Exception):
        code = int(pytest.main(options, [AnyExample()]))
    sys.exit(code)


class AnyExample:
    """One that fails will do: looking for the shortest takes most of the time."""

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutants")


def _end(process: ForkServerProcess) -> None:
    with suppress(ProcessLookupError):  # it has just begun, or ended
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.kill()


def done(
    work: Callable[[T], R], pieces: Sequence[T], runner: Runner, jobs: int
) -> Iterator[tuple[T, R]]:
    """What becomes of each piece, as soon as it is known."""
    with ThreadPoolExecutor(jobs) as pool:
        try:
            futures = {pool.submit(work, piece): piece for piece in pieces}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            runner.stop()
            raise


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", metavar="PART", help="of a file's or mutant's name")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="at a time (2)")
    options = parser.parse_args(arguments)
    everything = read(root / "tests/mutants/mutants.toml")
    mutants = [mutant for mutant in everything if options.only in mutant.name]
    if not mutants:
        print(f"no mutant has {options.only!r} in its name", file=sys.stderr)
        return 2
    began, counts = time.monotonic(), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        runner = Runner(root, Path(scratch))
        try:
            tests = sorted({test for mutant in mutants for test in mutant.tests})
            print(f"{len(mutants)} mutants; first {len(tests)} test files without any", flush=True)
            codes = done(lambda test: runner.tests([test], {}), tests, runner, options.jobs)
            if failed := sorted(test for test, code in codes if code != 0):
                print("these must pass before a mutant can fail them:", *failed, sep="\n  ")
                return 2
            for mutant, outcome in done(runner.outcome, mutants, runner, options.jobs):
                counts[outcome] += 1
                print(f"{counts.total():4} {outcome:8} {mutant.name}", flush=True)
        except KeyboardInterrupt:
            runner.stop()
            print("interrupted")
    minutes = (time.monotonic() - began) / 60
    others = "".join(f", {counts[kind]} {kind.lower()}" for kind in (STALE, BROKEN) if counts[kind])
    print(f"{counts[KILLED]} of {counts.total()} killed{others} ({minutes:.1f} minutes)")
    if counts.total() < len(mutants):
        return 130
    return 0 if counts[KILLED] == len(mutants) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C
    sys.exit(main())
