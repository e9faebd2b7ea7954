"""Which software and which machine made a run."""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGE = Path(__file__).resolve().parents[1]
DECIDES = ("rng.py", "data", "topology", "learning", "protocol", "attack", "engine", "experiment")
"""What of the package has a say in the outcome of a run, beside its recipe."""


def surroundings(device: torch.device) -> dict[str, Any]:
    """Which software and which machine made a run."""
    packages = {}
    for name in ("basil-fl", "torch", "numpy", "safetensors"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:  # run from a checkout that is not installed
            packages[name] = "?"
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    if device.type == "cuda":
        machine = f"{torch.cuda.get_device_name(device)}, {machine}"
    return {
        "versions": {"python": sys.version.split()[0], **packages},
        "commit": _commit(),
        "code": code_sha256(),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "machine": machine,
    }


def _commit() -> str | None:
    """The commit of the checkout that this code runs from, if it is one."""
    root = PACKAGE.parents[1]
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


@cache
def code_sha256() -> str:
    """One hash for the text of what decides the outcome of a run.

    It differs wherever results may, though the commit be the same (a changed checkout) or unknown
    (an installed package); and is the same where only words, figures or commands have changed.
    """
    total = hashlib.sha256()
    for part in DECIDES:
        place = PACKAGE / part
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            total.update(f"{file.relative_to(PACKAGE).as_posix()}\n".encode())
            total.update(file.read_bytes())
    return total.hexdigest()


def of_other_code(facts: Mapping[str, Any]) -> bool:
    """Whether what made a run (its run.json) may come to another outcome than this code."""
    return facts.get("code") != code_sha256()
