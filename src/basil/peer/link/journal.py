"""How far each sender has come: the last manifest of each, kept across restarts.

A journal of signed manifests.  A line is on the disk before the body that it belongs to is handed
on (or, for this node's own messages, before a byte of it leaves), so that no crash makes a node
take an old round for a new one, or sign two different models for one round.  When the journal has
grown it is replaced by one that holds the last line of each sender.
"""

import errno
import os
from pathlib import Path

from basil.errors import UserError
from basil.host import host
from basil.peer.members.files import write
from basil.peer.members.roster import Roster
from basil.peer.messages.manifest import Manifest, read_manifests, signed_by_sender

LONGEST = 4 << 20  # bytes of the journal, from which on it is written anew

Key = tuple[str, int, str]


def check_marks(path: Path, roster: Roster) -> None:
    """Is what counts of a journal as it was signed?  A changed mark would mute this node, or worse.

    Without the mark of its own last round it could sign that round a second time.
    """
    last = {m.key: (line, m) for line, m in enumerate(read_manifests(path), 1)}
    for line, manifest in last.values():
        if not signed_by_sender(manifest, roster):
            raise UserError(
                f"{path}, line {line}: node {manifest.sender} did not sign this, so it was changed"
                " on the disk: a new run needs run and state moved away on all machines; this one"
                " goes on without the node"
            )


class Journal:
    """The newest manifest for each (stage, sender, kind)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last: dict[Key, Manifest] = {m.key: m for m in read_manifests(path)}
        self._lock = host.lock()
        self._file = -1
        self._length = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._rewrite()
        except OSError as error:
            raise UserError(f"{path} cannot be kept: {error.strerror}") from error

    def put(self, manifest: Manifest) -> None:
        """Note it for good.  OSError if the disk does not take it: then nothing has changed."""
        line = manifest.encode() + b"\n"
        with self._lock:
            if self._length + len(line) > LONGEST:
                self._rewrite()
            try:
                if host.disk.write(self._file, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                host.disk.fdatasync(self._file)
            except OSError:
                os.ftruncate(self._file, self._length)  # half a line would spoil what follows
                raise
            self._length += len(line)
            self.last[manifest.key] = manifest

    def stages(self, sender: int) -> set[str]:
        """In which this sender has spoken."""
        with self._lock:
            return {stage for stage, node, _ in self.last if node == sender}

    def close(self) -> None:
        with self._lock:
            os.close(self._file)
            self._file = -1

    def _rewrite(self) -> None:
        content = b"".join(manifest.encode() + b"\n" for manifest in self.last.values())
        write(self.path, content)
        old, self._file = self._file, os.open(self.path, os.O_WRONLY | os.O_APPEND)
        self._length = len(content)
        if old >= 0:
            os.close(old)
