"""A page beside a run that another process carries out: python -m basil.watch PATH KIND."""

import os
import signal
import sys
import threading
from pathlib import Path

from basil.errors import UserError
from basil.watch.start import LOOPBACK, serve


def _end_with_parent() -> None:
    """Its end of the pipe is closed when it ends, even if it is killed."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    path, kind = sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        serve(Path(path), kind, LOOPBACK, 0, lambda url: print(url, flush=True))
    except UserError as error:
        print(f"basil: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
