"""A machine's own data: a folder of numpy arrays, read without pickle."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from basil.data.samples import Array, Dataset, Samples
from basil.errors import UserError

FACTS = "dataset.json"


def load_own(folder: Path) -> Dataset:
    """train-x.npy, train-y.npy, test-x.npy, test-y.npy, and dataset.json with what all nodes share.

    dataset.json: {"classes": 10, "mean": [33.3], "std": [78.6]}, the same on every machine; 0
    classes for regression.  x is uint8 [n, channels, height, width] or float32 [n, features], y
    int64 labels or float32 targets.
    """
    facts = _facts(folder / FACTS)
    classes = facts["classes"]
    train, test = (_samples(folder, name, classes) for name in ("train", "test"))
    if train.x.shape[1:] != test.x.shape[1:] or train.x.dtype != test.x.dtype:
        raise UserError(f"{folder}: train-x.npy and test-x.npy hold samples of different kinds")
    names = tuple(str(i) for i in range(classes))
    mean, std = tuple(facts["mean"]), tuple(facts["std"])
    return Dataset(folder.name, train, test, classes, names, mean, std)


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        classes, mean, std = facts["classes"], facts["mean"], facts["std"]
        good = type(classes) is int and classes >= 0 and len(mean) == len(std) > 0
        good = good and all(type(value) in (int, float) for value in [*mean, *std]) and min(std) > 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read as facts of a data set: {error}") from error
    if not good:
        raise UserError(
            f'{path}: it must be like {{"classes": 10, "mean": [33.3], "std": [78.6]}}, with a'
            " positive std"
        )
    return {"classes": classes, "mean": mean, "std": std}


def _samples(folder: Path, name: str, classes: int) -> Samples:
    x, y = (_array(folder / f"{name}-{axis}.npy") for axis in "xy")
    if len(x) != len(y) or len(x) == 0:
        raise UserError(f"{folder}: {name}-x.npy has {len(x)} samples, {name}-y.npy {len(y)}")
    if x.dtype not in (np.uint8, np.float32) or x.ndim < 2:
        raise UserError(f"{folder / f'{name}-x.npy'}: x must be uint8 or float32, a row a sample")
    if classes and (not np.issubdtype(y.dtype, np.integer) or y.min() < 0 or y.max() >= classes):
        raise UserError(f"{folder / f'{name}-y.npy'}: y must be whole numbers 0 to {classes - 1}")
    return Samples(x, y.astype(np.int64 if classes else np.float32))


def _array(path: Path) -> Array:
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    return array
