"""Data that is brought along: from Python, or on a machine of its own as a folder of arrays."""

import json
from pathlib import Path
from typing import NoReturn

import numpy as np

from basil.data.checks import checked
from basil.data.samples import Array, Dataset, Samples
from basil.errors import UserError

OWN = "own"
BROUGHT = ("text", OWN)  # what is in them is the user's: runs record it
FACTS = "dataset.json"


def own(seed: int, *, name: str = "", digest: str = "") -> NoReturn:
    """Your own: basil.run(…, dataset=…) or basil node --data brings it along.

    name, digest: filled in where a run is recorded.
    """
    said = f" (it was {name!r}, {digest})" if name else ""
    raise UserError(
        f"data set {OWN!r} is brought along{said}: basil.run(…, dataset=…), basil.resume(…,"
        " dataset=…) or basil node --data"
    )


def load_own(folder: Path) -> Dataset:
    """train-x.npy, train-y.npy, test-x.npy, test-y.npy, and dataset.json with what all nodes share.

    dataset.json: {"classes": 10, "mean": [33.3], "std": [78.6]}, the same on every machine; 0
    classes for regression, with "targets": 3 where it has several; mean and std [] for tokens.
    The files are read without pickle.
    """
    classes, targets, mean, std = _facts(folder / FACTS)
    train, test = (_samples(folder, name) for name in ("train", "test"))
    names = tuple(str(i) for i in range(classes or targets))
    made = Dataset(folder.resolve().name, train, test, classes, names, mean, std)
    return checked(made, str(folder))


def _facts(path: Path) -> tuple[int, int, tuple[float, ...], tuple[float, ...]]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        classes, targets = facts["classes"], facts.get("targets", 0)
        mean, std = tuple(facts["mean"]), tuple(facts["std"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read as facts of a data set: {error}") from error
    whole = type(classes) is type(targets) is int
    if not whole or not all(type(value) in (int, float) for value in mean + std):
        raise UserError(f'{path}: it must be like {{"classes": 10, "mean": [33.3], "std": [78.6]}}')
    return classes, targets, mean, std


def _samples(folder: Path, name: str) -> Samples:
    x, y = (_array(folder / f"{name}-{axis}.npy") for axis in "xy")
    try:
        return Samples(x, y)
    except UserError as error:
        raise UserError(f"{folder / name}-x.npy, -y.npy: {error}") from None


def _array(path: Path) -> Array:
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    return array
