"""Is this a data set that one can train on?  One sentence if not, before anything is trained.

All ways in come through `checked`: `basil.run(dataset=…)`, `data.dataset` of others' code or
registered, and the folder of `basil node --data`.
"""

import math
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from basil.data.samples import IGNORED, Array, Dataset, Samples, are_tokens
from basil.errors import UserError

NUMBERS, WHOLE = "biuf", "biu"  # numpy's kinds
CHANNELS = (1, 3, 4)  # of images, as files have them
TOKENS = (np.int16, np.int32, np.int64)  # types that stay as they are
PIECE = 1 << 26  # bytes that are looked at together: what lies in a file is not read as a whole


def checked(data: object, whose: str, scan: bool = True) -> Dataset:
    """The data set with arrays as `Samples` describes them, or what is wrong with it.

    Inputs of other numbers become float32, but whole numbers without a mean and std are tokens;
    whole numbers as labels become int64.  scan: look at every value; without it, at shapes and
    types only.
    """
    if not isinstance(data, Dataset):
        raise UserError(f"{whose} is a {type(data).__name__}, not a basil.Dataset")
    try:
        return _checked(data, scan)
    except UserError as error:
        raise UserError(f"{whose}: {error}") from None


def _checked(data: Dataset, scan: bool) -> Dataset:
    if not isinstance(data.classes, Integral) or data.classes < 0:
        raise UserError(f"classes = {data.classes!r}: it must be 2 or more, or 0 for regression")
    classes, names = int(data.classes), tuple(map(str, data.class_names))
    if len(names) != classes and classes:
        raise UserError(f"{classes} classes have {len(names)} names")
    bare = np.size(data.mean) == np.size(data.std) == 0
    train = _samples(data.train, classes, names, bare, "training", scan)
    test = _samples(data.test, classes, names, bare, "test", scan)
    shape, other = train.x.shape[1:], test.x.shape[1:]
    if shape != other:
        raise UserError(f"samples have the shape {shape} for training and {other} for the test")
    if train.x.dtype != test.x.dtype:
        raise UserError(f"inputs are {train.x.dtype} for training and {test.x.dtype} for the test")
    if scan and classes and len(seen := np.unique(test.y[test.y != IGNORED])) == 1:
        raise UserError(f"all labels of the test set are {seen[0]}: it tells nothing apart")
    mean, std = ((), ()) if bare and are_tokens(train.x) else _scale(data, shape)
    return replace(
        data, train=train, test=test, classes=classes, class_names=names, mean=mean, std=std
    )


def _scale(data: Dataset, shape: tuple[int, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std of samples of this shape."""
    mean, std = _numbers(data.mean, "mean"), _numbers(data.std, "std")
    # A std for each of axis 1 means channels, whatever they look like.
    if len(shape) == 3 and shape[-1] in CHANNELS and shape[0] not in (*CHANNELS, len(std)):
        raise UserError(
            f"images have the shape {shape}, channels last: Basil wants them first,"
            " x.transpose(0, 3, 1, 2)"
        )
    if len(mean) != len(std) or len(std) not in (1, shape[0]):
        raise UserError(
            f"mean has {len(mean)} and std {len(std)} numbers: both must have 1,"
            f" or {shape[0]}, one for each channel (axis 1 of x)"
        )
    if min(std) <= 0:
        raise UserError(f"std = {min(std)}: inputs are divided by it, so it must be more than 0")
    return mean, std


def _samples(
    samples: Samples, classes: int, names: tuple[str, ...], bare: bool, part: str, scan: bool
) -> Samples:
    if not isinstance(samples, Samples):
        raise UserError(f"the {part} set is a {type(samples).__name__}, not basil.Samples")
    if len(samples) == 0:
        raise UserError(f"the {part} set is empty")
    x = _inputs(samples.x, bare, part, scan)
    if classes:
        y = _labels(samples.y, x, classes, part, scan)
    else:
        y = _targets(samples.y, len(names), part, scan)
    fine, key = (
        None if extra is None else _whole(_column(extra, what), what)
        for extra, what in (
            (samples.fine, f"finer labels of the {part} set"),
            (samples.key, f"keys of the {part} set"),
        )
    )
    return Samples(x, y, fine, key)


def _inputs(x: Array, bare: bool, part: str, scan: bool) -> Array:
    if x.ndim < 2:
        raise UserError(
            f"inputs of the {part} set have the shape {x.shape}: a row a sample is wanted,"
            " x[:, None]"
        )
    if x.dtype == np.uint8:
        return x
    if not bare or x.dtype.kind not in WHOLE:
        return _floats(x, f"inputs of the {part} set", scan)
    if scan and x.min() < 0:
        raise UserError(f"tokens of the {part} set go down to {x.min()}: they are numbered from 0")
    return x if x.dtype in TOKENS else x.astype(np.int64)


def _targets(y: Array, names: int, part: str, scan: bool) -> Array:
    what = f"targets of the {part} set"
    if names > 1 and y.shape[1:] != (names,):
        raise UserError(f"{what} have the shape {y.shape}: {names} names are for [n, {names}]")
    return _floats(y if names > 1 else _column(y, what), what, scan)


def _labels(y: Array, x: Array, classes: int, part: str, scan: bool) -> Array:
    what = f"labels of the {part} set"
    each = are_tokens(x) and x.shape == y.shape  # a label for each token
    hot = y.ndim == 2 and y.shape[1] == classes
    if hot and (not each or (np.count_nonzero(y, axis=1) == 1).all()):
        raise UserError(f"{what} have a column for each class (one-hot): give y.argmax(axis=1)")
    y = _whole(y if each else _column(y, what), what)
    if not scan:
        return y
    known = y[y != IGNORED] if each else y
    if known.size == 0:
        raise UserError(f"{what} are all {IGNORED}, which means that none counts")
    if known.min() < 0:
        raise UserError(f"{what} go down to {known.min()}: classes are numbered from 0")
    if known.max() >= classes:
        raise UserError(
            f"{what} are {known.min()} to {known.max()}; with classes = {classes} they are 0 to"
            f" {classes - 1}"
        )
    return y


def _column(y: Array, what: str) -> Array:
    if y.ndim != 1:
        raise UserError(f"{what} have the shape {y.shape}: one number a sample can be learned, [n]")
    return y


def _whole(y: Array, what: str) -> Array:
    if y.dtype.kind not in WHOLE:
        raise UserError(f"{what} are {y.dtype}: they must be whole numbers, y.astype(np.int64)")
    return y.astype(np.int64, copy=False)


def _floats(values: Array, what: str, scan: bool) -> Array:
    if values.dtype.kind not in NUMBERS:
        raise UserError(f"{what} are {values.dtype}: they must be numbers, best float32")
    with np.errstate(over="ignore"):  # what is too large is infinite then
        values = values.astype(np.float32, copy=False)
    pieces = np.array_split(values, values.nbytes // PIECE + 1) if scan else []
    if bad := sum(piece.size - int(np.count_nonzero(np.isfinite(piece))) for piece in pieces):
        raise UserError(f"{what} hold {bad} numbers that are NaN, infinite or beyond float32")
    return values


def _numbers(values: Any, what: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(value) for value in np.ravel(values))
    except (TypeError, ValueError):
        numbers = ()
    if not numbers or not all(map(math.isfinite, numbers)):
        raise UserError(f"{what} = {values!r:.60}: it must be finite numbers")
    return numbers
