"""What must survive a power failure, and a disk that is full."""

import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from basil.errors import UserError
from basil.host import host
from basil.text import amount

TAKES_NO_MORE = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.ENOENT,
    )
)
"""How writing fails on a disk that is full, read-only, broken or gone."""


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        host.disk.fsync(descriptor)
    finally:
        os.close(descriptor)


def partial_of(path: Path) -> Path:
    """What is to become this file, while it is written."""
    return path.with_name(f"{path.name}.partial")


@contextmanager
def replacing(path: Path, durable: bool = False) -> Iterator[Path]:
    """What is written to the file that this gives takes the place of `path`, whole or not at all.

    durable: it has reached the disk at the end, so that a power cut cannot undo it, and a disk that
    finds out late that it is full (a network's, a quota) keeps the old file.
    """
    partial = partial_of(path)
    try:
        yield partial
        if durable:
            sync(partial)
        host.disk.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
    if durable:
        sync(path.parent)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A disk that does not take what is written here is said in one sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """A safetensors file.  A disk that does not take it is an OSError, as for any other file."""
    try:
        save_file(dict(tensors), path, metadata=metadata)
    except SafetensorError as error:  # which has the system's number in its text only
        found = re.search(r"os error (\d+)", str(error))
        if found is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number), str(path)) from error


def check_room(folder: Path, needed: int) -> None:
    """Is there room for so many bytes in this folder, with what lies there already?"""
    there = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    place = next(
        place for place in (folder.absolute(), *folder.absolute().parents) if place.exists()
    )
    free = there + shutil.disk_usage(place).free
    if free < needed:
        raise UserError(
            f"{folder} needs about {amount(needed)} for checkpoints and models, and has"
            f" {amount(free)}: make room, or choose another disk"
        )
