"""The disks of a simulated world: what was not forced to them may be lost, torn, or not fit.

Files are real ones in memory.  This takes the place of `os` where peers write what must last, and
remembers what a file held when it was last forced to the disk.
"""

import errno
import os
from pathlib import Path
from typing import Any

from chaos.threads import World

OLD = object()  # a file that was there before the night


class Disks:
    """Of all nodes; `os` for the modules that write."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world, self._root = world, str(folder)
        self._kept: dict[str, bytes] = {}  # path -> what a power cut leaves of it
        self._renamed: dict[str, bytes | None] = {}  # not yet for good: the folder was not forced
        self._first = {str(path) for path in folder.rglob("*") if path.is_file()}
        self.full: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    # -- what peers call -----------------------------------------------------------------------

    def write(self, file: int, content: bytes) -> int:
        self._takes()
        return os.write(file, content)

    def fsync(self, file: int) -> None:
        self._takes()
        path = os.readlink(f"/proc/self/fd/{file}")
        if os.path.isdir(path):
            for renamed in [name for name in self._renamed if os.path.dirname(name) == path]:
                content = self._renamed.pop(renamed)
                if content is not None:
                    self._kept[renamed] = content
        else:
            self._kept[path] = Path(path).read_bytes()

    fdatasync = fsync

    def replace(self, source: Path, target: Path) -> None:
        self._takes()
        os.replace(source, target)
        self._renamed[str(target)] = self._kept.pop(str(source), None)

    def _takes(self) -> None:
        if self._world.node in self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # -- what the night does -------------------------------------------------------------------

    def power_cut(self, folder: Path) -> None:
        """Of what was not forced to the disk some part is there, and some is not."""
        draw = self._world.random
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name, now = str(path), path.read_bytes()
            before = self._kept.get(name)
            if name in self._first and before is None and name not in self._renamed:
                continue
            if name in self._renamed and draw.random() < 0.5:
                whole = self._renamed.pop(name)
                if whole is not None:  # the name had reached the disk after all
                    self._kept[name] = before = whole
            if before is None:
                self._lose(path, now)
            elif now.startswith(before):
                path.write_bytes(now[: draw.randint(len(before), len(now))])
            else:
                path.write_bytes(before)
        self._renamed = {k: v for k, v in self._renamed.items() if not k.startswith(str(folder))}

    def _lose(self, path: Path, now: bytes) -> None:
        draw = self._world.random
        fate = draw.random()
        if fate < 0.3:
            path.unlink()
        elif fate < 0.6:
            path.write_bytes(now[: draw.randint(0, len(now))])
