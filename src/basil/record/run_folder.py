"""The files of a run folder, as they are written."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from safetensors.torch import save_file
from torch import Tensor

from basil.errors import UserError
from basil.learning.layout import Layout

RECIPE, FACTS, SUMMARY = "recipe.toml", "run.json", "summary.json"
METRICS, SELECTIONS = "metrics.jsonl", "selections.csv"
JOINS = "joins.csv"  # whose model was taken between groups
CHECKPOINT, MODELS = "checkpoint.safetensors", "models.safetensors"
LOCK = ".lock"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """While a run is written nobody else writes to its folder.

    A process that dies lets go of it: the system keeps the lock, not the file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK).acquire(blocking=False)
    except Timeout as error:
        raise UserError(f"{folder} is being written by another process") from error
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error
    with lock:
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / LOCK).unlink()


def create(folder: Path, recipe_text: str, facts: dict[str, Any]) -> None:
    """A new run folder; never one that holds a run already."""
    if (folder / FACTS).exists():
        hint = f", or basil run --resume {folder}" if (folder / CHECKPOINT).exists() else ""
        raise UserError(f"{folder} holds a run already: choose another --out{hint}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RECIPE).write_text(recipe_text, encoding="utf-8")
        write_json(folder / FACTS, facts)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error


def write_json(path: Path, value: Any) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, path)


def save_models(path: Path, models: Mapping[int, Tensor], layout: Layout) -> None:
    """The final vectors, `node-7` each, with the layout that says what lies where in them."""
    slots = [[s.name, s.shape, s.start, s.stop] for s in layout.slots]
    tensors = {f"node-{node}": model.detach().cpu().clone() for node, model in models.items()}
    save_file(tensors, path, metadata={"layout": json.dumps(slots)})


def models_sha256(models: Mapping[int, Tensor]) -> str:
    """One hash for all vectors, by ascending node: equal only if every bit is."""
    total = hashlib.sha256()
    for node in sorted(models):
        total.update(np.ascontiguousarray(models[node].detach().cpu().numpy()).tobytes())
    return total.hexdigest()


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
        "device": str(device),
        "threads": torch.get_num_threads(),
        "machine": machine,
    }


def _commit() -> str | None:
    """The commit of the checkout that this code runs from, if it is one."""
    root = Path(__file__).resolve().parents[3]
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
