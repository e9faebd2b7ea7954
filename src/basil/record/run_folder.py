"""The files of a run folder, as they are written."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from torch import Tensor

from basil.errors import UserError
from basil.learning.layout import Layout
from basil.record.disk import TAKES_NO_MORE, partial_of, replacing, save_tensors

RECIPE, FACTS, SUMMARY = "recipe.toml", "run.json", "summary.json"
METRICS, SELECTIONS = "metrics.jsonl", "selections.csv"
JOINS = "joins.csv"  # whose model was taken between groups
SHARING, ANONYMITY = "sharing.json", "anonymity.csv"
CHECKPOINT, MODELS = "checkpoint.safetensors", "models.safetensors"
CHECKPOINT_BEFORE = "checkpoint-before.safetensors"  # the last but one: should the last be damaged
FAULT = "error.txt"  # the traceback of what should not have happened
LOCK = ".lock"


class InUse(UserError):
    """Another process writes to this folder."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """While a run is written nobody else writes to its folder.

    A process that dies lets go of it: the system keeps the lock, not the file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK).acquire(blocking=False)
    except Timeout as error:
        raise InUse(f"{folder} is being written by another process") from error
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error
    with lock:
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / LOCK).unlink()


def create(folder: Path, recipe_text: str, facts: dict[str, Any], durable: bool = False) -> None:
    """A new run folder; never one that holds a run already.

    durable: it is there also after a power cut, or not at all.
    """
    if (folder / FACTS).exists():
        hint = f", or basil run --resume {folder}" if (folder / CHECKPOINT).exists() else ""
        raise UserError(
            f"{folder} holds a run already: choose another --out{hint}"
            " (from Python: overwrite=True)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / RECIPE, durable) as partial:
        partial.write_text(recipe_text, encoding="utf-8")
    write_json(folder / FACTS, facts, durable)


@contextmanager
def kept(folder: Path) -> Iterator[None]:
    """A disk that takes no more ends a run with one sentence, and the last checkpoint stays."""
    try:
        yield
    except OSError as error:
        if error.errno not in TAKES_NO_MORE:
            raise
        hint = f"its last checkpoint is kept; once it can be, basil run --resume {folder}"
        if not (folder / CHECKPOINT).exists():
            hint = "nothing was trained yet; once it can be, run it again"
            with suppress(OSError):  # so that the same command can be given again
                (folder / FACTS).unlink()
        raise UserError(f"{folder} cannot be written: {error.strerror}; {hint}") from error


def clear(folder: Path) -> None:
    """Remove the run that a folder holds, and nothing else in it."""
    if not (folder / FACTS).exists():
        return
    files = (RECIPE, SUMMARY, METRICS, SELECTIONS, JOINS, SHARING, ANONYMITY, MODELS)
    with held(folder):
        drop_leftovers(folder)
        for name in (*files, FACTS):  # what makes it a run goes last
            (folder / name).unlink(missing_ok=True)


def drop_leftovers(folder: Path) -> None:
    """What a finished run does not need: its checkpoints, and what failed attempts have left."""
    (folder / FAULT).unlink(missing_ok=True)
    for name in (CHECKPOINT, CHECKPOINT_BEFORE):
        for file in (folder / name, partial_of(folder / name)):
            file.unlink(missing_ok=True)


def write_json(path: Path, value: Any, durable: bool = False) -> None:
    with replacing(path, durable) as partial:
        partial.write_bytes(json.dumps(value, indent=1).encode() + b"\n")


def save_models(path: Path, models: Mapping[int, Tensor], layout: Layout) -> None:
    """The final vectors, `node-7` each, with the layout that says what lies where in them."""
    slots = [[s.name, s.shape, s.start, s.stop] for s in layout.slots]
    tensors = {f"node-{node}": model.detach().cpu().clone() for node, model in models.items()}
    with replacing(path, durable=True) as partial:
        save_tensors(partial, tensors, {"layout": json.dumps(slots)})


def models_sha256(models: Mapping[int, Tensor]) -> str:
    """One hash for all vectors, by ascending node: equal only if every bit is."""
    total = hashlib.sha256()
    for node in sorted(models):
        total.update(np.ascontiguousarray(models[node].detach().cpu().numpy()).tobytes())
    return total.hexdigest()
