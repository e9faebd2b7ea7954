"""The disks of a simulated world: what was not forced to them may be lost, torn, or not fit.

Files are real ones in memory.  This takes the place of `os` where peers write what must last, and
remembers what a file held when it was last forced to the disk.
"""

import errno
import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos.threads import World

WRITTEN = ("run", "state", "roster.toml")  # of a node's folder


class Disks:
    """Of all nodes; `os` for the modules that write."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        self._kept: dict[str, bytes] = {}  # path -> what a power cut leaves of it
        # By folder and name: not yet for good, since the folder was not forced to the disk.
        self._renamed: defaultdict[str, dict[str, bytes | None]] = defaultdict(dict)
        self._first = {str(path) for path in folder.rglob("*") if path.is_file()}
        self.full: set[int] = set()
        # node -> after how many calls it stops, and what then becomes of it
        self.stops: dict[int, tuple[int, Callable[[], object]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    # -- what peers call -----------------------------------------------------------------------

    def write(self, file: int, content: bytes) -> int:
        self._takes()
        return os.write(file, content)

    def fsync(self, file: int) -> None:
        self._takes()
        self._force(file)
        self._reached()

    fdatasync = fsync

    def _force(self, file: int) -> None:
        path, about = os.readlink(f"/proc/self/fd/{file}"), os.fstat(file)
        if stat.S_ISDIR(about.st_mode):
            for renamed, content in self._renamed.pop(path, {}).items():
                if content is not None:
                    self._kept[renamed] = content
        else:
            self._kept[path] = _content(path, about.st_size)

    def replace(self, source: Path, target: Path) -> None:
        self._takes()
        os.replace(source, target)
        name = str(target)
        self._renamed[os.path.dirname(name)][name] = self._kept.pop(str(source), None)
        self._reached()

    def _takes(self) -> None:
        self._reached()
        if self._world.node in self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _reached(self) -> None:
        """A point at which others may go on, and this node may end."""
        node = self._world.node
        if node not in self.stops:
            return
        left, stop = self.stops[node]
        self.stops[node] = left - 1, stop
        if left <= 0:
            del self.stops[node]
            stop()
            self._world.hub.switch()  # never to come back, and nothing is cleared away

    # -- what the night does -------------------------------------------------------------------

    def power_cut(self, folder: Path) -> None:
        """Of what was not forced to the disk some part is there, and some is not."""
        draw = self._world.random
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name, now = str(path), path.read_bytes()
            before, renamed = self._kept.get(name), self._renamed[str(path.parent)]
            if name in self._first and before is None and name not in renamed:
                continue
            if name in renamed and draw.random() < 0.5:
                whole = renamed.pop(name)
                if whole is not None:  # the name had reached the disk after all
                    self._kept[name] = before = whole
            if before is None:
                self._lose(path, now)
            elif now.startswith(before):
                path.write_bytes(now[: draw.randint(len(before), len(now))])
            else:
                path.write_bytes(before)
        for parent in [each for each in self._renamed if each.startswith(str(folder))]:
            del self._renamed[parent]

    def remember(self, folder: Path, copy: Path) -> None:
        """As a backup does."""
        shutil.rmtree(copy, ignore_errors=True)
        for name in WRITTEN:
            if (folder / name).is_dir():
                shutil.copytree(folder / name, copy / name)

    def bring_back(self, folder: Path, copy: Path) -> None:
        """The disk as it was then."""
        for name in WRITTEN:
            if (copy / name).is_dir():
                shutil.rmtree(folder / name, ignore_errors=True)
                shutil.copytree(copy / name, folder / name)
        self._keep_all(folder)

    def flip(self, folder: Path) -> str:
        """A bit of some file of this node."""
        draw = self._world.random
        files = [folder / name for name in WRITTEN if (folder / name).is_file()]
        for name in WRITTEN:
            files += sorted(path for path in (folder / name).rglob("*") if path.is_file())
        path = draw.choice([path for path in files if path.stat().st_size])
        content = bytearray(path.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)
        self._keep_all(folder)
        return str(path.relative_to(folder))

    def _keep_all(self, folder: Path) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                self._kept[str(path)] = path.read_bytes()

    def _lose(self, path: Path, now: bytes) -> None:
        draw = self._world.random
        fate = draw.random()
        if fate < 0.3:
            path.unlink()
        elif fate < 0.6:
            path.write_bytes(now[: draw.randint(0, len(now))])


def _content(path: str, size: int) -> bytes:
    """Of a small file."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, size)
    finally:
        os.close(file)
