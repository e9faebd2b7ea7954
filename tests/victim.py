"""A node in a process of its own.  Answers each line on its input with a line of JSON.

python victim.py RING NODE VALUES [LARGEST-FILE]
"""

import json
import resource
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from peer_helpers import QUICK, Peer


def main() -> None:
    ring, node, values = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    peer = Peer(ring, node, replace(QUICK, waiting=2), values)
    taken: list[list[int]] = []

    def take() -> None:
        while True:
            time.sleep(0.005)
            while peer.got:
                message = peer.got.pop(0)
                taken.append([message.sender, message.round])

    with peer:
        threading.Thread(target=take, daemon=True).start()
        print(json.dumps({"at rest": memory("VmRSS")}), flush=True)
        for line in sys.stdin:
            if line.startswith("largest file"):
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that writing fails instead
                limit = int(line.split()[-1])
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            facts = {
                "taken": taken,
                "most": memory("VmHWM"),
                "threads": threading.active_count(),
                "files": len(list(Path("/proc/self/fd").iterdir())),
                "refused": {n: dict(t.refused) for n, t in peer.transport.counters.items()},
                "strangers": dict(peer.transport.counters.strangers),
                "excluded": sorted(peer.transport.evidence.excluded),
            }
            print(json.dumps(facts), flush=True)


def memory(name: str) -> int:
    """Bytes of resident memory: now (VmRSS), or the most so far (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return 1024 * int(line.split()[1])
    raise AssertionError(name)


if __name__ == "__main__":
    main()
