"""Would a night notice?  Faults planted one at a time in a copy of src (`make planted`)."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NIGHTS = 2000


def faults() -> Iterator[tuple[str, str, str, str]]:
    """The file, what is wrong, the text, and what takes its place."""
    for part in tomllib.loads((HERE / "planted.toml").read_text(encoding="utf-8"))["file"]:
        for what, (old, new) in part["faults"].items():
            yield part["path"], what, old, new


def planted(path: str, old: str, new: str) -> str:
    """The file's text with the fault."""
    text = (ROOT / "src/basil" / path).read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise ValueError(f"{path} does not have exactly once: {old!r}")
    return text.replace(old, new)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="PART", help="of a file's or fault's name")
    parser.add_argument("--nights", type=int, default=NIGHTS, help="at most, for each")
    args = parser.parse_args()
    missed = 0
    for path, what, old, new in faults():
        if args.only not in f"{path}: {what}":
            continue
        with tempfile.TemporaryDirectory() as folder:
            for name in ("src", "recipes"):
                shutil.copytree(ROOT / name, Path(folder, name))
            Path(folder, "src/basil", path).write_text(planted(path, old, new), encoding="utf-8")
            after, why = _found(f"{folder}/src", args.nights)
        missed += after is None
        said = f"NOT FOUND in {args.nights} nights" if after is None else f"found after {after}"
        print(f"{path}: {what}: {said}{why}", flush=True)
    return bool(missed)


def _found(source: str, nights: int) -> tuple[int | None, str]:
    command = [sys.executable, "-m", "chaos.run", "--stop", "--seeds", str(nights)]
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=ROOT / "tests", env=environment, capture_output=True, text=True, check=False
    )
    counted = re.search(r"^(\d+) nights, .* (\d+) with violations", done.stdout, re.MULTILINE)
    if counted is None:
        raise RuntimeError(done.stderr[-2000:])
    why = re.search(r"^night \d+: (.*)", done.stdout, re.MULTILINE)
    return (int(counted[1]), f" ({why[1][:100]})") if why else (None, "")


if __name__ == "__main__":
    raise SystemExit(main())
