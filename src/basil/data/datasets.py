"""The data sets a recipe can name.

Every entry takes the seed of the run and, by keyword, the options of its own.  None of the sets
here depends on the seed: runs that differ in it alone learn from, and are tested on, the same
samples.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from basil import rng
from basil.data.checks import checked
from basil.data.files import read_cifar, read_digits, read_idx_samples, read_names
from basil.data.own import BROUGHT, OWN, own
from basil.data.samples import Dataset, Samples
from basil.data.sources import source, where
from basil.data.synthetic import synthetic
from basil.data.text import text
from basil.errors import UserError
from basil.table import Table, nearest

__all__ = ["DATASETS", "Dataset", "Samples", "load"]

DIGIT_NAMES = tuple(str(digit) for digit in range(10))
FASHION_NAMES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
CIFAR10_NAMES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


def digits(seed: int, *, test_fraction: float = 0.2, labels: str = "fine") -> Dataset:
    """1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn: nothing to fetch.

    Pixels are 0 to 16.  test_fraction: the share kept for testing, the same samples in every run.
    labels = "coarse": learn five superclasses, 0 or 1, 2 or 3, and so on; the digits are then the
    samples' `fine`, as the classes of `cifar100` are.

    Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
    Learning Repository, 1998 (its test set); `sklearn.datasets.load_digits`.
    """
    if not 0 < test_fraction < 1:
        raise UserError(
            f"test_fraction = {test_fraction}: a share between 0 and 1 is kept for testing, "
            "such as 0.2"
        )
    if labels not in ("coarse", "fine"):
        raise UserError(
            f"labels = {labels!r}: digits has 'fine' (10 digits) and 'coarse' (5 pairs of them)"
        )
    x, y = read_digits()
    order = rng.stream(0, "digits", "split").permutation(len(y))
    held_out = min(max(1, round(len(y) * test_fraction)), len(y) - 1)
    test, train = order[:held_out], order[held_out:]
    coarse = labels == "coarse"
    pairs = tuple(f"{digit} or {digit + 1}" for digit in range(0, 10, 2))
    return Dataset(
        name="digits",
        train=Samples(x[train], y[train] // 2, y[train]) if coarse else Samples(x[train], y[train]),
        test=Samples(x[test], y[test] // 2, y[test]) if coarse else Samples(x[test], y[test]),
        classes=5 if coarse else 10,
        class_names=pairs if coarse else DIGIT_NAMES,
        mean=(float(x[train].mean()),),
        std=(float(x[train].std()),),
    )


def mnist(seed: int) -> Dataset:
    """MNIST: 60,000 + 10,000 handwritten digits, 28 x 28 grey pixels.

    Source: Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, "Gradient-based learning applied to
    document recognition", Proceedings of the IEEE 86(11), 1998.
    """
    # Mean and standard deviation of the training set's pixels.
    return _idx_set("mnist", DIGIT_NAMES, mean=33.3184, std=78.5675)


def fashion_mnist(seed: int) -> Dataset:
    """Fashion-MNIST: 60,000 + 10,000 pieces of clothing in MNIST's format.

    Source: H. Xiao, K. Rasul and R. Vollgraf, "Fashion-MNIST: a novel image dataset for
    benchmarking machine learning algorithms", arXiv:1708.07747, 2017.
    """
    return _idx_set("fashion-mnist", FASHION_NAMES, mean=72.94, std=90.02)


def cifar10(seed: int) -> Dataset:
    """CIFAR-10: 50,000 + 10,000 colour photographs in 10 classes, 32 x 32 pixels.

    Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", University of
    Toronto, 2009.
    """
    names = read_names(where("cifar10") / "batches.meta.txt", CIFAR10_NAMES)
    (train_x, (train_y,)), (test_x, (test_y,)) = _cifar_parts("cifar10", (10,))
    return Dataset(
        name="cifar10",
        train=Samples(train_x, train_y),
        test=Samples(test_x, test_y),
        classes=10,
        class_names=names,
        # Of the training set's pixels, for each channel.
        mean=(125.3069, 122.9504, 113.8654),
        std=(62.9932, 62.0887, 66.7049),
    )


def cifar100(seed: int, *, labels: str = "coarse") -> Dataset:
    """CIFAR-100: 50,000 + 10,000 colour photographs in 20 superclasses of 5 classes each.

    labels = "coarse": learn the 20 superclasses, as in Appendix H-E of the Basil paper; the 100
    classes are then the samples' `fine`.  labels = "fine": learn the 100 classes.

    Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", University of
    Toronto, 2009.
    """
    if labels not in ("coarse", "fine"):
        raise UserError(
            f"labels = {labels!r}: cifar100 has 'coarse' (20 superclasses) and 'fine' (100 classes)"
        )
    classes = 20 if labels == "coarse" else 100
    train, test = (
        Samples(x, coarse, fine) if labels == "coarse" else Samples(x, fine)
        for x, (coarse, fine) in _cifar_parts("cifar100", (20, 100))
    )
    return Dataset(
        name="cifar100",
        train=train,
        test=test,
        classes=classes,
        class_names=read_names(
            where("cifar100") / f"{labels}_label_names.txt", [f"class {i}" for i in range(classes)]
        ),
        # Of the training set's pixels, for each channel.
        mean=(129.3042, 124.0700, 112.4341),
        std=(68.1702, 65.3918, 70.4184),
    )


DATASETS: Table[Callable[..., Dataset]] = Table(
    "data set",
    {
        "digits": digits,
        "mnist": mnist,
        "fashion-mnist": fashion_mnist,
        "cifar10": cifar10,
        "cifar100": cifar100,
        "synthetic": synthetic,
        "text": text,
        OWN: own,
    },
    group="datasets",
    takes=("seed",),
)


def load(name: str, seed: int, /, **options: Any) -> Dataset:
    """The data set of this name, from files that are on this machine already."""
    known = DATASETS.options(name)
    for option in options:
        if option not in known:
            hint = nearest(option, known) if known else "it has none"
            raise UserError(f"data set {name!r} has no option {option!r}; {hint}")
    made = DATASETS[name](seed, **options)
    # The values of what is shipped were looked at before it was.
    shipped = DATASETS.digest(name) is None and name not in BROUGHT
    return checked(made, f"data set {name!r}", scan=not shipped)


def _idx_set(name: str, class_names: tuple[str, ...], mean: float, std: float) -> Dataset:
    folder = where(name)
    return Dataset(
        name=name,
        train=read_idx_samples(folder, "train", name),
        test=read_idx_samples(folder, "t10k", name),
        classes=len(class_names),
        class_names=class_names,
        mean=(mean,),
        std=(std,),
    )


def _cifar_parts(name: str, classes: tuple[int, ...]) -> list[tuple[Any, list[Any]]]:
    """(pixels, labels by label byte) of the training and of the test set."""
    files = source(name)
    assert files is not None
    folder = where(name)
    parts = []
    for is_test in (False, True):
        read = [
            read_cifar(folder / file, name, classes, size)
            for file, size in files.files.items()
            if file.startswith("test") == is_test
        ]
        pixels = np.concatenate([x for x, _ in read])
        labels = [np.concatenate([y[i] for _, y in read]) for i in range(len(classes))]
        parts.append((pixels, labels))
    return parts
