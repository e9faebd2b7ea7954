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
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.int64: "I64",
    torch.float64: "F64",
}
"""What safetensors calls the types of numbers."""

ALIGNED = 8  # bytes: where numbers begin in a safetensors file

_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


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
def replacing(path: Path, durable: bool = False, shared: bool = False) -> Iterator[Path]:
    """What is written to the file that this gives takes the place of `path`, whole or not at all.

    durable: it has reached the disk at the end, so that a power cut cannot undo it, and a disk that
    finds out late that it is full (a network's, a quota) keeps the old file.
    shared: other processes may do the same now, each with a file of its own; the last one stays.
    """
    partial = partial_of(path.with_name(f"{path.name}.{os.getpid()}") if shared else path)
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


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """A safetensors file: the same bytes each time, and a disk that is full is an OSError.

    Written here: the library takes longer for small models, and writes metadata in any order.
    """
    # The widest first, so that each lies where numbers of its width may.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    contents: list[memoryview] = []
    end = 0
    for name in names:
        tensor, begin = tensors[name], end
        contents.append(content_of(tensor))
        end += tensor.nbytes
        header[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": tuple(tensor.shape),
            "data_offsets": (begin, end),
        }
    text = _write(header).encode()
    text += b" " * (-len(text) % ALIGNED)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for content in contents:
            file.write(content)


def content_of(tensor: Tensor) -> memoryview:
    """The numbers of a tensor on the CPU in a row, without a copy where they lie so."""
    if tensor.dtype == torch.bfloat16:  # which numpy does not know
        tensor = tensor.view(torch.int16)
    return tensor.numpy(force=True).reshape(-1).data


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
