"""Files that must be whole, and files that only their owner may read."""

import os
from pathlib import Path

from basil.errors import UserError
from basil.record.disk import replacing

PRIVATE = 0o600
MOST = 1 << 20  # bytes


def write(path: Path, content: bytes, mode: int = 0o644) -> None:
    """A reader sees the old file or the new one, also after a power failure."""
    with replacing(path, durable=True) as partial:
        partial.unlink(missing_ok=True)
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(file, "wb") as stream:
            stream.write(content)


def read(path: Path) -> bytes:
    """A small file, or one sentence."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MOST + 1)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MOST:
        raise UserError(f"{path} is larger than {MOST} bytes: it cannot be what it should be")
    return content


def read_private(path: Path) -> bytes:
    """A key.  Refused if anybody but its owner could have read it too."""
    content = read(path)
    if path.stat().st_mode & 0o077:
        raise UserError(f"{path} can be read by others: chmod 600 {path}")
    return content
