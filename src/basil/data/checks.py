"""Is this a data set that one can train on?  One sentence if not, before anything is trained.

All ways in come through `checked`: `basil.run(dataset=…)`, `data.dataset` of others' code or
registered, and the folder of `basil node --data`.
"""

import math
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from basil.data.samples import Array, Dataset, Samples
from basil.errors import UserError

NUMBERS, WHOLE = "biuf", "biu"  # numpy's kinds
CHANNELS = (1, 3, 4)  # of images, as files have them


def checked(data: object, whose: str, scan: bool = True) -> Dataset:
    """The data set with arrays as `Samples` describes them, or what is wrong with it.

    Inputs of other numbers become float32, whole numbers as labels int64.  scan: look at every
    value; without it, at shapes and types only.
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
    if len(names) != classes:
        raise UserError(f"{classes} classes have {len(names)} names")
    train = _samples(data.train, classes, "training", scan)
    test = _samples(data.test, classes, "test", scan)
    shape, other = train.x.shape[1:], test.x.shape[1:]
    if shape != other:
        raise UserError(f"samples have the shape {shape} for training and {other} for the test")
    if train.x.dtype != test.x.dtype:
        raise UserError(f"inputs are {train.x.dtype} for training and {test.x.dtype} for the test")
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
    if scan and classes and (test.y == test.y[0]).all():
        raise UserError(f"all labels of the test set are {test.y[0]}: it tells nothing apart")
    return replace(
        data, train=train, test=test, classes=classes, class_names=names, mean=mean, std=std
    )


def _samples(samples: Samples, classes: int, part: str, scan: bool) -> Samples:
    if not isinstance(samples, Samples):
        raise UserError(f"the {part} set is a {type(samples).__name__}, not basil.Samples")
    if len(samples) == 0:
        raise UserError(f"the {part} set is empty")
    x, fine = _inputs(samples.x, part, scan), samples.fine
    y = _labels(samples.y, classes, part, scan) if classes else _targets(samples.y, part, scan)
    if fine is not None:
        fine = _whole(fine, f"finer labels of the {part} set")
    return Samples(x, y, fine)


def _inputs(x: Array, part: str, scan: bool) -> Array:
    if x.ndim < 2:
        raise UserError(
            f"inputs of the {part} set have the shape {x.shape}: a row a sample is wanted,"
            " x[:, None]"
        )
    if x.dtype == np.uint8:
        return x
    return _floats(x, f"inputs of the {part} set", scan)


def _targets(y: Array, part: str, scan: bool) -> Array:
    return _floats(_column(y, f"targets of the {part} set"), f"targets of the {part} set", scan)


def _labels(y: Array, classes: int, part: str, scan: bool) -> Array:
    what = f"labels of the {part} set"
    if y.ndim == 2 and y.shape[1] == classes:
        raise UserError(f"{what} have a column for each class (one-hot): give y.argmax(axis=1)")
    y = _whole(_column(y, what), what)
    if scan and y.min() < 0:
        raise UserError(f"{what} go down to {y.min()}: classes are numbered from 0")
    if scan and y.max() >= classes:
        raise UserError(
            f"{what} are {y.min()} to {y.max()}; with classes = {classes} they are 0 to"
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
    if scan and not (finite := np.isfinite(values)).all():
        bad = values.size - int(np.count_nonzero(finite))
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
