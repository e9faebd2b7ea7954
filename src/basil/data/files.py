"""Reads the plain formats image sets come in: MNIST's IDX, CIFAR's binary records, a table.

The first two are a few numbers followed by raw bytes.  Everything those numbers promise is checked,
so a file that was cut off or damaged says so here instead of training a bad model in silence.
"""

import gzip
import importlib.util
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from basil.data.samples import Labels, Samples
from basil.errors import UserError

Bytes = npt.NDArray[np.uint8]

CIFAR_PIXELS = (3, 32, 32)


def missing(path: Path, dataset: str) -> UserError:
    return UserError(
        f"{path} does not exist: fetch it with `basil data get {dataset}`, "
        "or set BASIL_DATA to the folder that holds your data sets"
    )


def damaged(path: Path, dataset: str, what: str) -> UserError:
    return UserError(f"{path} {what}: delete it and run `basil data get {dataset}` again")


def read_idx(path: Path, dataset: str, item: tuple[int, ...]) -> Bytes:
    """A gzipped IDX file of unsigned bytes whose items have shape `item`, as uint8 [n, *item].

    Header: 0, 0, type (8 = unsigned byte), number of axes; then each axis as a big-endian uint32.
    """
    try:
        with gzip.open(path) as file:
            content = file.read()
    except FileNotFoundError:
        raise missing(path, dataset) from None
    except EOFError:
        raise damaged(path, dataset, "is truncated (the gzip stream has no end)") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise damaged(path, dataset, f"is not a sound gzip file ({error})") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None

    axes = 1 + len(item)
    magic = bytes((0, 0, 8, axes))
    header = 4 + 4 * axes
    if content[:4] != magic:
        raise damaged(
            path, dataset, f"begins with {content[:4].hex(' ')}, not with IDX's {magic.hex(' ')}"
        )
    if len(content) < header:
        raise damaged(path, dataset, f"has a header of {len(content)} bytes instead of {header}")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", axes, offset=4))
    if shape[1:] != item:
        raise damaged(path, dataset, f"holds items of shape {shape[1:]} instead of {item}")
    promised = int(np.prod(shape, dtype=object))
    if len(content) - header != promised:
        raise damaged(
            path,
            dataset,
            f"has {len(content) - header} bytes of data where its header promises {promised}",
        )
    # A copy, since an array over immutable bytes is read-only, and torch warns about those.
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy()


def read_idx_samples(folder: Path, part: str, dataset: str, classes: int = 10) -> Samples:
    """MNIST's pair of files, part = "train" or "t10k": 28 x 28 images with one channel."""
    images = folder / f"{part}-images-idx3-ubyte.gz"
    labels = folder / f"{part}-labels-idx1-ubyte.gz"
    x = read_idx(images, dataset, (28, 28))
    y = as_labels(labels, dataset, read_idx(labels, dataset, ()), classes)
    if len(x) != len(y):
        raise damaged(labels, dataset, f"has {len(y)} labels for {len(x)} images in {images.name}")
    return Samples(x[:, None], y)


def read_cifar(
    path: Path, dataset: str, classes: Sequence[int], size: int | None
) -> tuple[Bytes, list[Labels]]:
    """CIFAR records: a byte for each of the labels, then 3 x 32 x 32 pixels (red, green, blue).

    classes: how many classes each label byte tells apart.  size: what the file must have in bytes.
    """
    record = len(classes) + int(np.prod(CIFAR_PIXELS))
    try:
        content = np.fromfile(path, np.uint8)
    except FileNotFoundError:
        raise missing(path, dataset) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None
    if size is not None and content.size != size:
        raise damaged(path, dataset, f"has {content.size} bytes instead of {size}")
    if content.size == 0 or content.size % record:
        raise damaged(
            path, dataset, f"has {content.size} bytes, not a whole number of {record}-byte records"
        )
    rows = content.reshape(-1, record)
    labels = [as_labels(path, dataset, rows[:, i], n) for i, n in enumerate(classes)]
    pixels = rows[:, len(classes) :].reshape(-1, *CIFAR_PIXELS)  # a copy: the labels are cut out
    return pixels, labels


def read_digits() -> tuple[Bytes, Labels]:
    """scikit-learn's digits: images [n, 1, 8, 8] and what they show.

    From its file, as its `load_digits` reads it; to import scikit-learn would take seconds.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise UserError(
            "data set 'digits' comes with scikit-learn, which is not installed here: "
            "run `pip install scikit-learn`, or use 'synthetic', which needs nothing"
        )
    file = Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz"
    table = np.loadtxt(file, np.uint8, delimiter=",")
    return table[:, :-1].reshape(-1, 1, 8, 8), table[:, -1].astype(np.int64)


def as_labels(path: Path, dataset: str, labels: Bytes, classes: int) -> Labels:
    """The label bytes as int64, all of them classes that exist."""
    outside = np.flatnonzero(labels >= classes)
    if outside.size:
        raise damaged(
            path,
            dataset,
            f"gives sample {outside[0]} the label {labels[outside[0]]}, "
            f"but the labels are 0 to {classes - 1}",
        )
    return labels.astype(np.int64)


def read_names(path: Path, fallback: Sequence[str]) -> tuple[str, ...]:
    """Class names, one on each line; the fallback when the file is absent or has another number."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return tuple(fallback)
    names = tuple(line.strip() for line in lines if line.strip())
    return names if len(names) == len(fallback) else tuple(fallback)
