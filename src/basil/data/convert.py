"""Samples as others keep them, read once into arrays: PyTorch data sets, tables, lists."""

from collections.abc import Callable, Sequence
from numbers import Number
from typing import Any

import numpy as np

from basil.data.samples import Array, Dataset, Samples
from basil.errors import UserError

Collate = Callable[[list[Any]], tuple[Any, Any]]
ASK = "give collate=, a function from a list of samples to (x, y), arrays with a row a sample"


def from_samples(
    train: Any,
    test: Any,
    *,
    collate: Collate | None = None,
    classes: int | None = None,
    class_names: Sequence[str] = (),
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    name: str = "own",
) -> Dataset:
    """A data set from anything with a length whose samples have numbers and are pairs (x, y).

    So are most of `torch.utils.data.Dataset`, and lists.  Samples of another form, such as rows of
    a Hugging Face table, are made into arrays by `collate`: from a list of all samples to (x, y).
    classes: if not given, one more than the largest label, and 0, regression, for targets that are
    no whole numbers.  mean, std: if not given, those of the training set for bytes, and none for
    other numbers, which are taken as they are; whole numbers are tokens.
    """
    learned, tested = _read(train, "training", collate), _read(test, "test", collate)
    if classes is None:
        whole = all(part.y.dtype.kind in "biu" for part in (learned, tested))
        classes = max(2, int(learned.y.max()) + 1, int(tested.y.max()) + 1) if whole else 0
    names = tuple(class_names) or tuple(map(str, range(classes)))
    center, spread = _scale(learned.x)
    return Dataset(
        name,
        learned,
        tested,
        classes,
        names,
        center if mean is None else tuple(mean),
        spread if std is None else tuple(std),
    )


def is_pair(data: object) -> bool:
    """Can this be (train, test)?"""
    return isinstance(data, tuple) and [_holds_samples(part) for part in data] == [True, True]


def _holds_samples(part: object) -> bool:
    return hasattr(part, "__getitem__") or hasattr(part, "__iter__")


def _read(samples: Any, part: str, collate: Collate | None) -> Samples:
    what = f"the {part} set"
    if not (hasattr(samples, "__len__") and hasattr(samples, "__getitem__")):
        raise UserError(
            f"{what} is a {type(samples).__name__}, which has no length, or no samples by number:"
            " give a list of what it holds"
        )
    listed = [samples[i] for i in range(len(samples))]
    if not listed:
        raise UserError(f"{what} is empty")
    if collate is not None:
        made = collate(listed)
        if not isinstance(made, tuple | list) or len(made) != 2:
            raise UserError(f"collate makes {type(made).__name__} of {what}, not (x, y)")
        x, y = made
        return Samples(_array(x, f"x of {what}"), _array(y, f"y of {what}"))
    first = listed[0]
    if isinstance(first, dict):
        raise UserError(f"samples of {what} have the columns {', '.join(map(str, first))}: {ASK}")
    if not isinstance(first, tuple | list) or len(first) != 2:
        raise UserError(f"samples of {what} are {type(first).__name__}, not pairs (x, y): {ASK}")
    xs, ys = zip(*listed, strict=True)
    return Samples(_stacked(xs, f"x of {what}"), _stacked(ys, f"y of {what}"))


def _stacked(values: Sequence[Any], what: str) -> Array:
    arrays = [_array(value, what) for value in values]
    if shapes := {array.shape for array in arrays} - {arrays[0].shape}:
        raise UserError(f"{what} has the shapes {arrays[0].shape} and {shapes.pop()}: {ASK}")
    return np.stack(arrays)


def _array(value: Any, what: str) -> Array:
    """Of a tensor, an array, numbers; a picture could be meant in too many ways."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    if not isinstance(value, np.ndarray | Number | tuple | list) and not hasattr(value, "dtype"):
        raise UserError(f"{what} is a {type(value).__name__}, no numbers: {ASK}")
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} cannot be made an array: {error}") from error


def _scale(x: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if x.dtype != np.uint8 or x.ndim < 2:
        return ((), ()) if x.dtype.kind in "iu" else ((0.0,), (1.0,))
    channels = (0, 2, 3) if x.ndim == 4 else None
    mean = np.ravel(x.mean(axis=channels))
    squares = np.ravel(np.square(x, dtype=np.uint16).mean(axis=channels))
    std = np.sqrt(np.maximum(squares - mean**2, 0))
    return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())
