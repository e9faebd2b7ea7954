"""How much slower a run becomes because somebody looks: ten pages, against none.

Runs by turns with and without, in processes of their own.  Wall-clock time is what one gets; the
processor time of the run alone shows what it costs on a machine that has nothing to spare.
"""

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from basil.watch.start import RUN, beside

VIEWERS, PAIRS = 10, 5
WORDS = ("run", "demo", "-s", "scheme.rounds=100", "-s", "record.every=1", "--json")


def measure() -> dict[str, Any]:
    """Seconds of a run, alone and with viewers, and the ratios of the two."""
    times: dict[str, list[tuple[float, float]]] = {"alone": [], "watched": []}
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(PAIRS):
            for name, viewers in (("alone", 0), ("watched", VIEWERS)):
                times[name].append(_run(Path(folder) / f"{name}-{pair}", viewers))
    wall = {name: median(t for t, _ in found) for name, found in times.items()}
    cpu = {name: median(t for _, t in found) for name, found in times.items()}
    return {
        "seconds": {name: round(value, 2) for name, value in wall.items()},
        "ratio": round(wall["watched"] / wall["alone"], 3),
        "cpu_ratio": round(cpu["watched"] / cpu["alone"], 3),
    }


def _run(folder: Path, viewers: int) -> tuple[float, float]:
    """Real seconds that the run says it took, and seconds of processor time of its process."""
    with ExitStack() as until:
        if viewers:
            page = until.enter_context(beside(folder, RUN))
            assert page.stdout is not None
            url = urlsplit(page.stdout.readline().strip())
            for _ in range(viewers):
                threading.Thread(target=_view, args=(url.netloc, url.path), daemon=True).start()
        process = subprocess.Popen(
            [sys.executable, "-m", "basil", *WORDS, "--out", str(folder)],
            stdout=subprocess.PIPE,
            text=True,
        )
        out = process.stdout
        assert out is not None
        summary = json.loads(out.read())
        out.close()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
        return summary["seconds"], used.ru_utime + used.ru_stime


def _view(place: str, path: str) -> None:
    connection = http.client.HTTPConnection(place)
    connection.request("GET", f"{path}events")
    answer = connection.getresponse()
    while answer.readline():
        pass
    connection.close()


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
