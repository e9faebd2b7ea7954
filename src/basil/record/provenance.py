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
NO_SAY = ("cli", "reporting")
"""What of the package has none in the outcome of a run.  All else counts, what is new as well."""


def surroundings(device: torch.device) -> dict[str, Any]:
    """Which software and which machine made a run."""
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    if device.type == "cuda":
        machine = f"{torch.cuda.get_device_name(device)}, {machine}"
    return {
        "versions": {"python": sys.version.split()[0], **_packages()},
        "commit": _commit(),
        "code": code_sha256(),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "machine": machine,
    }


@cache
def _packages() -> dict[str, str]:
    """Their versions; to look for them takes milliseconds."""
    packages = {}
    for name in ("basil-fl", "torch", "numpy", "safetensors"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:  # run from a checkout that is not installed
            packages[name] = "?"
    return packages


@cache
def _commit() -> str | None:
    """The commit of the checkout that this code runs from, if it is one.

    Asked once: what is committed while a process goes on from run to run is not what it runs.
    """
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
    """One hash for the text of all that may decide the outcome of a run.

    It differs wherever results may, though the commit be the same (a changed checkout) or unknown
    (an installed package); and is the same where only commands, reports or documents have changed.
    """
    total = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*.py")):
        name = file.relative_to(PACKAGE)
        if name.parts[0] not in NO_SAY:
            total.update(f"{name.as_posix()}\n".encode())
            total.update(file.read_bytes())
    return total.hexdigest()


def of_other_code(facts: Mapping[str, Any]) -> bool:
    """Whether what made a run (its run.json) may come to another outcome than this code."""
    return facts.get("code") != code_sha256()
