"""A disk that takes no more, at whatever moment, loses nothing of a run."""

import errno
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from basil.errors import UserError
from basil.experiment import Hooks, Machine, Setup, Simulation, set_up
from basil.experiment.output import room_for
from basil.recipe import parse, to_toml
from basil.record.run_folder import CHECKPOINT, MODELS, SUMMARY

from ring_helpers import files_of_run

TREE: dict[str, Any] = {
    "seed": 3,
    "ring": {"nodes": 2, "byzantine": 0, "connectivity": 1},
    "scheme": {"rounds": 2},
    "learning": {"model": "softmax", "batch": 16, "rate": 0.1},
    "record": {"every": 1, "checkpoint": 0.0},
}
CPU = Machine("cpu")
KINDS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class FullDisk:
    """Takes so many operations, half of the next, and nothing until there is room again."""

    def __init__(self, takes: float, number: int) -> None:
        self.takes, self.number, self.asked = takes, number, 0

    def full(self) -> bool:
        self.asked += 1
        return self.asked > self.takes

    def error(self) -> OSError:
        return OSError(self.number, os.strerror(self.number))


class File:
    """A file on such a disk."""

    def __init__(self, file: Any, disk: FullDisk) -> None:
        self._file, self._disk = file, disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, content: Any) -> int:
        if self._disk.full():
            self._file.write(content[: len(content) // 2])
            raise self._disk.error()
        return int(self._file.write(content))

    def flush(self) -> None:
        if self._disk.full():
            raise self._disk.error()
        self._file.flush()

    def close(self) -> None:
        self._file.close()
        if self._disk.full():
            raise self._disk.error()


@contextmanager
def on(full: FullDisk) -> Iterator[None]:
    """Whatever is written goes to this disk."""
    really_open = io.open

    def opened(file: Any, mode: str = "r", *words: Any, **named: Any) -> Any:
        if mode not in ("w", "a", "wb"):
            return really_open(file, mode, *words, **named)
        if full.full():
            raise full.error()
        return File(really_open(file, mode, *words, **named), full)

    def guarded(work: Any) -> Any:
        def call(*words: Any) -> Any:
            if full.full():
                raise full.error()
            return work(*words)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io, "open", opened)
        patch.setattr(os, "replace", guarded(os.replace))
        patch.setattr(os, "fsync", guarded(lambda _: None))  # there is no power cut here
        yield


@pytest.fixture(scope="module")
def setup() -> Setup:
    return set_up(parse(TREE), machine=CPU)


def test_a_disk_that_is_full_at_any_write_costs_nothing_once_there_is_room(
    tmp_path: Path, setup: Setup
) -> None:
    """At every single write, flush, fsync and rename of a run, one after the other."""
    whole = FullDisk(float("inf"), 0)
    with on(whole):
        summary = Simulation(setup).run(tmp_path / "whole")
    expected = files_of_run(tmp_path / "whole")
    again = 0  # times that nothing was trained yet
    for takes in range(whole.asked):
        folder, number = tmp_path / str(takes), KINDS[takes % len(KINDS)]
        with on(FullDisk(takes, number)), pytest.raises(UserError) as raised:
            Simulation(setup).run(folder)
        sentence = str(raised.value)
        assert f"{folder} cannot be written: {os.strerror(number)}; " in sentence
        assert not list(folder.glob("*.partial")), "it would take up room that is needed"
        if "run it again" in sentence:
            assert not (folder / CHECKPOINT).exists()
            again += 1
            found = Simulation(setup).run(folder)
        elif (folder / SUMMARY).exists():  # whole, though its name may not be on the disk yet
            continue
        else:
            assert f"its last checkpoint is kept; once it can be, basil run --resume {folder}" in (
                sentence
            )
            found = Simulation(setup).run(folder, resume=True)
        assert found["model_sha256"] == summary["model_sha256"], takes
        assert files_of_run(folder) == expected, takes
    # The first checkpoint comes with the first turn.
    assert again < whole.asked / 3


def test_a_callback_that_fails_in_its_own_way_is_not_taken_for_a_disk(
    tmp_path: Path, setup: Setup
) -> None:
    class Offline:
        def begin(self, *_: object) -> None: ...

        def measured(self, _: dict[str, Any]) -> None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens")

        def end(self, _: dict[str, Any]) -> None: ...

    with pytest.raises(ConnectionRefusedError):
        Simulation(setup).run(tmp_path / "run", Hooks(callbacks=[Offline()]))


def test_without_room_a_run_does_not_begin(
    tmp_path: Path, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = room_for(setup)
    usage = shutil.disk_usage(tmp_path)

    def free(count: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=count))

    folder = tmp_path / "deep/run"
    free(needed - 1)
    sentence = "deep/run needs about 1.1 MB for checkpoints and models, and has 1.1 MB: make room"
    with pytest.raises(UserError, match=sentence):
        Simulation(setup).run(folder)
    assert not list(folder.iterdir())
    free(needed)
    Simulation(setup).run(folder)


@pytest.mark.parametrize("scheme", ["basil", "r-plain", "ubar", "nna"])
def test_what_a_run_is_said_to_need_is_enough_for_its_checkpoints(
    tmp_path: Path, scheme: str
) -> None:
    tree = {
        **TREE,
        "ring": {"nodes": 10, "byzantine": 2},
        "scheme": {"name": scheme, "rounds": 8},
        "attack": {"name": "silent"},
    }
    sized = set_up(parse(tree), machine=CPU)
    largest = 0

    def look() -> bool:
        nonlocal largest
        path = tmp_path / "run" / CHECKPOINT
        largest = max(largest, path.stat().st_size if path.exists() else 0)
        return False

    Simulation(sized).run(tmp_path / "run", Hooks(stop=look))
    models = (tmp_path / "run" / MODELS).stat().st_size
    assert 2 * largest + max(largest, models) < room_for(sized)


def mounts() -> bool:
    """May this user make a file system of its own?"""
    words = ["unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(words, capture_output=True).returncode == 0
    except OSError:
        return False


REAL = """
set -e
mount -t tmpfs -o size=3m none "$1"
cd "$1"
$2 -m basil run ../ring.toml --device cpu --out run &
until [ "$(wc -l < run/metrics.jsonl)" -gt 3 ] 2> none; do sleep 0.05; done
head -c 9m /dev/zero > filler 2> none || true
wait $! && exit 9 || [ $? = 2 ]
rm filler none
$2 -m basil run --resume run --device cpu > /dev/null
cp -r run ..
"""


@pytest.mark.slow
@pytest.mark.skipif(not mounts(), reason="no file system can be mounted here")
def test_a_small_disk_that_fills_up_while_a_run_goes_on(tmp_path: Path) -> None:
    recipe = parse({**TREE, "scheme": {"rounds": 100}})
    (tmp_path / "ring.toml").write_text(to_toml(recipe))
    (tmp_path / "disk").mkdir()
    words = ["unshare", "-Urm", "sh", "-c", REAL, "sh", str(tmp_path / "disk"), sys.executable]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert "run cannot be written: No space left on device; its last checkpoint" in done.stderr
    assert done.returncode == 0, done.stderr
    Simulation(set_up(recipe, machine=CPU)).run(tmp_path / "whole")
    assert files_of_run(tmp_path / "run") == files_of_run(tmp_path / "whole")
