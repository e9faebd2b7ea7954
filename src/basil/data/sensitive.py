"""Which samples are never shared: rules that mark the sensitive ones (§IV-A, phase 1).

Every entry takes the training samples and returns True for each that must not leave its node.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from basil.data.samples import Samples
from basil.errors import UserError
from basil.table import Table

Mask = NDArray[np.bool_]


def nothing(samples: Samples) -> Mask:
    """No sample is sensitive."""
    return np.zeros(len(samples), bool)


def classes(samples: Samples, *, classes: str = "") -> Mask:
    """All samples of some classes: `classes` lists their numbers, "3 5 8"."""
    words = classes.replace(",", " ").split()
    if not words or not all(word.isascii() and word.isdecimal() for word in words):
        raise UserError(f'sharing.classes = {classes!r}: list the sensitive classes, "3 5 8"')
    marked = [int(word) for word in words]
    present = {int(y) for y in np.unique(samples.y)}
    for label in marked:
        if label not in present:
            raise UserError(f"sharing.classes = {classes!r}: no sample has class {label}")
    return np.isin(samples.y, marked)


def subclasses(samples: Samples, *, gamma: float = 0.4) -> Mask:
    """All but the first share γ of the subclasses of each class (App. H-E).

    The order of the subclasses is the same at all nodes, so what is sensitive at one is so at all.
    """
    if samples.fine is None:
        raise UserError(
            "sharing.sensitive = 'subclasses': the data set has no finer classes; cifar100 has"
        )
    if not 0 < gamma <= 1:
        raise UserError(f"sharing.gamma = {gamma}: it must be more than 0 and at most 1")
    marked = np.zeros(len(samples), bool)
    for label in np.unique(samples.y):
        finer = np.unique(samples.fine[samples.y == label])
        secret = finer[round(gamma * len(finer)) :]
        marked |= (samples.y == label) & np.isin(samples.fine, secret)
    return marked


def mask(samples: Samples, *, file: str = "") -> Mask:
    """An own choice: a .npy file with True for each training sample that is sensitive."""
    if not file:
        raise UserError("sharing.file: name the .npy file that marks the sensitive samples")
    try:
        marked = np.load(Path(file), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"sharing.file = {file!r} cannot be read: {error}") from error
    if marked.shape != (len(samples),) or marked.dtype != np.bool_:
        raise UserError(
            f"sharing.file = {file!r}: it must hold {len(samples)} truth values, one for each"
            f" training sample; it holds {marked.dtype} {list(marked.shape)}"
        )
    return np.asarray(marked, np.bool_)


SENSITIVE: Table[Callable[..., Mask]] = Table(
    "rule for sensitive samples",
    {"none": nothing, "classes": classes, "subclasses": subclasses, "mask": mask},
    group="sensitive",
    takes=("samples",),
)
