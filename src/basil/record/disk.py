"""What must survive a power failure, and a disk that is full."""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
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

DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}
"""As a safetensors header has them."""


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
    """A safetensors file.  A disk that does not take it is an OSError, as for any other file.

    The library's own way takes several times as long for a small model, and hides the system's
    number in a text.
    """
    # The widest values first: a reader maps the file, and each value must be aligned.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, tensor in ordered:
        start, end = end, end + tensor.nbytes
        form = {"dtype": DTYPES[tensor.dtype], "shape": tensor.shape}
        header[name] = {**form, "data_offsets": (start, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in ordered:
            file.write(bytes_of(tensor))


def bytes_of(tensor: Tensor) -> memoryview:
    """As it lies in memory; not a copy where that is in one piece."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


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
