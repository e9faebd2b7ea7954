"""The same work with what one could take instead of Basil, each in an environment of its own.

python benchmarks/rivals.py [NAME …] [--repeats 2] [--rounds 6] [--threads 1]

A rival is a folder in benchmarks/rivals: `requirements.txt`, and `run.py`, which is given the work
as JSON and ends with a line of JSON (rivals/work.py).  Environments are made in build/rivals, with
the PyTorch of constraints.txt.  Basil runs in this one.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RIVALS, CONSTRAINTS = HERE / "rivals", HERE.parent / "constraints.txt"
CACHE = HERE.parent / "build" / "rivals"
OURS = "basil"
WORK = {
    "nodes": 20, "byzantine": 6, "batch": 50, "steps": 10, "samples": 600, "rate": 0.05,
}  # fmt: skip
KINDS = {"plain": "nobody lies", "attacked": f"{WORK['byzantine']} of them send noise"}
LONGEST = 900  # seconds for a script

Found = dict[str, Any]


class CannotRun(Exception):
    """One sentence."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--repeats", type=int, default=2, help="by turns; the fastest counts")
    parser.add_argument("--rounds", type=int, default=6, help="the first is not counted")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    known = sorted(path.parent.name for path in RIVALS.glob("*/requirements.txt"))
    if unknown := set(args.names) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(known)}")
    if args.rounds < 2 or args.repeats < 1:
        parser.error("at least two rounds, and one repeat")
    work = {**WORK, "rounds": args.rounds, "threads": args.threads}
    found, failed = compare(RIVALS, [OURS, *(args.names or known)], work, args.repeats)
    print(f"{json.dumps(work)}\n")
    if OURS in found:
        print("\n".join(table(found)))
    for name, reason in failed.items():
        print(f"\n{name}: {reason}")


def compare(
    folder: Path, names: list[str], work: dict[str, Any], repeats: int
) -> tuple[dict[str, Found], dict[str, str]]:
    """What each found, the fastest of repeats by turns; and why others found nothing."""
    found: dict[str, Found] = {}
    failed: dict[str, str] = {}
    for _ in range(repeats):
        for name in names:
            if name in failed:
                continue
            try:
                python = sys.executable if name == OURS else environment(folder / name)
                new = run(python, folder / name / "run.py", work)
            except CannotRun as error:
                failed[name] = str(error)
            else:
                found[name] = faster(found.get(name, new), new)
    return {name: one for name, one in found.items() if name not in failed}, failed


def environment(folder: Path) -> str:
    """Its Python, made if there is none with these requirements."""
    place, requirements = CACHE / folder.name, folder / "requirements.txt"
    python, mark = place / "bin" / "python", place / "installed"
    torch = re.search(r"^torch==.*$", CONSTRAINTS.read_text(), re.MULTILINE)
    assert torch is not None
    wanted = f"{torch[0]}\n{requirements.read_text()}"
    if not mark.exists() or mark.read_text() != wanted:
        venv.create(place, clear=True, with_pip=True)
        (place / "constraints.txt").write_text(f"{torch[0]}\n")
        words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        words += ["-r", str(requirements), "-c", str(place / "constraints.txt")]
        done = subprocess.run([python, *words], capture_output=True, text=True)
        if done.returncode:
            why = [s for s in done.stderr.splitlines() if s.startswith("ERROR")] or ["pip failed"]
            raise CannotRun(f"does not install here. {why[-1].removeprefix('ERROR: ')}.")
        mark.write_text(wanted)
    return str(python)


def run(python: str, script: Path, work: dict[str, Any]) -> Found:
    """The last line that the script prints."""
    if not script.exists():
        raise CannotRun(f"installs here, but {script.name} is still to be written.")
    path = [str(RIVALS)]
    if python == sys.executable:
        path += [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    outside = {
        "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": str(work["threads"]),
        "FLWR_TELEMETRY_ENABLED": "0", "FLWR_HOME": str(CACHE / "flower-home"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }  # fmt: skip
    words = [python, str(script), json.dumps(work)]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=LONGEST, env={**os.environ, **outside}
        )
    except subprocess.TimeoutExpired:
        raise CannotRun(f"was not done after {LONGEST} s.") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise CannotRun(f"fails here. {last}")
    found: Found = json.loads(lines[-1])
    return found


def faster(one: Found, other: Found) -> Found:
    """The smaller of each two times."""
    ways = {
        kind: {
            way: [min(pair) for pair in zip(times, other[kind][way], strict=True)]
            for way, times in one[kind].items()
        }
        for kind in KINDS
    }
    return {**one, **ways}


def table(found: dict[str, Found]) -> list[str]:
    """Markdown: for each kind of work the ways of all; ratios are to Basil's first one."""
    lines = []
    for kind, title in KINDS.items():
        ours = next(iter(found[OURS][kind].values()))
        lines += [
            f"| {title} | | ms a step | CPU ms a step | ratio | CPU ratio |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for name, one in found.items():
            for way, times in one[kind].items():
                ratios = [a / b for a, b in zip(times, ours, strict=True)]
                numbers = (f"{number:.2f}" for number in (*times, *ratios))
                cells = (f"{name} {one['version']}", way, *numbers)
                lines.append(f"| {' | '.join(cells)} |")
            if not one[kind]:
                lines.append(f"| {name} {one['version']} | cannot | | | | |")
        lines.append("")
    return [*lines, *(f"- {name}: {one['can']}." for name, one in found.items())]


if __name__ == "__main__":
    main()
