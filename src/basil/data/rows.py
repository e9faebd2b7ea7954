"""Samples as rows of bytes: what travels when peers share data.

A row is x as it is stored, then the label: one byte for up to 256 classes, otherwise four (a class
number, or a float32 target).  All rows of a data set have one length, so none stands out.
"""

import numpy as np
from numpy.typing import NDArray

from basil.data.samples import Array, Dataset, Samples

Rows = NDArray[np.uint8]


def to_rows(samples: Samples, classes: int) -> Rows:
    """[sample, byte]; the finer labels stay at home."""
    x = np.ascontiguousarray(samples.x).reshape(len(samples), -1).view(np.uint8)
    y = np.ascontiguousarray(samples.y.astype(_label(classes)))[:, None].view(np.uint8)
    return np.concatenate([x.reshape(len(samples), -1), y], axis=1)


def from_rows(rows: Rows, like: Dataset) -> Samples:
    """The samples again, of the shape that this data set has."""
    label = _label(like.classes)
    shape, kind = like.train.x.shape[1:], like.train.x.dtype
    x = np.ascontiguousarray(rows[:, : -label.itemsize]).view(kind).reshape(len(rows), *shape)
    return Samples(x, _labels(rows, label).astype(like.train.y.dtype))


def possible(rows: Array, like: Dataset) -> NDArray[np.bool_]:
    """For each row: can it be a sample?  A class that exists; numbers that are finite."""
    found = from_rows(rows, like)
    good = np.ones(len(rows), bool)
    if np.issubdtype(found.x.dtype, np.floating):
        good &= np.isfinite(found.x.reshape(len(rows), -1)).all(axis=1)
    if like.classes:
        return good & (found.y >= 0) & (found.y < like.classes)
    return good & np.isfinite(found.y)


def _label(classes: int) -> np.dtype[np.generic]:
    if classes == 0:
        return np.dtype("<f4")
    return np.dtype("u1") if classes <= 256 else np.dtype("<i4")


def _labels(rows: Rows, label: np.dtype[np.generic]) -> Array:
    return np.ascontiguousarray(rows[:, -label.itemsize :]).view(label)[:, 0]
