"""A download that carries on where an earlier attempt broke off.

Bytes are gathered in a `.part` file beside the target, which outlives failures and even the
process.  The next attempt asks the server for the rest alone.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import requests

CHUNK = 1 << 16
TIMEOUT = (10.0, 60.0)  # seconds: to connect, and between two pieces of the answer


@dataclass
class Resume:
    """Attempts pause 1, 2, 4 ... seconds apart.

    report(done, total) is told of progress in bytes; total is None while unknown.
    """

    part: Path
    report: Callable[[int, int | None], None] = lambda done, total: None
    attempts: int = 5
    pause: float = 1.0
    stale: bool = False  # whether the file was built on a piece found on disk at the start

    def fetch(self, url: str) -> bool:
        """Complete the part; was it built on a piece that was there before?"""
        self.stale = _size(self.part) > 0
        for attempt in range(1, self.attempts + 1):
            try:
                self._continue(url)
                break
            except requests.RequestException as error:
                if attempt == self.attempts or _hopeless(error):
                    raise
                time.sleep(self.pause * 2 ** (attempt - 1))
        return self.stale

    def _continue(self, url: str) -> None:
        have = _size(self.part)
        # Compressed on its way, a range would count bytes that are not those of the file.
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            if have and response.status_code == 416:  # nothing after these bytes
                if response.headers.get("Content-Range") == f"bytes */{have}":
                    return  # since they are the whole file
                self.part.unlink()
                raise requests.ConnectionError(f"{url} is shorter than the {have} bytes at hand")
            response.raise_for_status()
            continues = response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
            if response.status_code != 206 or not continues:
                have, self.stale = 0, False  # the server sends the whole file again
            length = response.headers.get("Content-Length")
            total = have + int(length) if length else None
            with self.part.open("ab" if have else "wb") as file:
                self.report(have, total)
                for chunk in response.iter_content(CHUNK):
                    file.write(chunk)
                    have += len(chunk)
                    self.report(have, total)
        # Older urllib3 takes a connection closed too early for the end of the answer.
        if total is not None and have < total:
            raise requests.ConnectionError(f"{url} broke off after {have} of {total} bytes")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _hopeless(error: requests.RequestException) -> bool:
    """Whether the server said no (404, 403 ...), which it would say again."""
    return error.response is not None and 400 <= error.response.status_code < 500
