"""Convex problems with a known optimum: what the theory speaks of, small enough to check."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from basil import rng
from basil.data.samples import Array, Dataset, Samples
from basil.errors import UserError
from basil.table import nearest, states

LOGIT_SCALE = 3.0  # standard deviation of a true logit: clear classes that still overlap


def _memory(*, task: str, samples: int, features: int, classes: int, noise: float) -> int:
    """Bytes, at the least: features in float32, and while they are made a logit for each class."""
    logits = classes if task == "classification" else 1
    return max(0, samples) * (4 * max(0, features) + 8 * max(0, logits))


@states(memory=_memory)
def synthetic(
    seed: int,
    *,
    task: str = "classification",
    samples: int = 2000,
    features: int = 20,
    classes: int = 5,
    noise: float = 0.1,
) -> Dataset:
    """Gaussian features with a linear truth: softmax or least-squares regression, both convex.

    a ~ N(0, I), and a quarter as many test samples as training samples.

    task = "classification": y ~ softmax(W* a) with W* ~ N(0, 9/features), except that a share
    `noise` of the labels is drawn uniformly.  The training loss has a finite optimum as long as
    the samples cannot be separated (unique up to one vector added to all the classes' weights);
    it has no closed form, but a few steps of Newton or L-BFGS find it to machine precision.

    task = "regression": y = <a, w*> + noise N(0, 1) with w* ~ N(0, I); the optimum of the squared
    error is `least_squares_optimum`.  `classes` has no meaning here.

    The data depend on these options alone, not on the seed of the run.
    """
    problems: dict[str, Callable[[str, int], Samples]] = {
        "classification": lambda part, n: _softmax(part, n, features, classes, noise),
        "regression": lambda part, n: _linear(part, n, features, noise),
    }
    if task not in problems:
        raise UserError(f"task = {task!r} does not exist; {nearest(task, problems)}")
    for option, value, smallest in (
        ("samples", samples, 1),
        ("features", features, 1),
        ("classes", classes, 2),
    ):
        if value < smallest:
            raise UserError(f"{option} = {value}: synthetic data need at least {smallest}")
    largest = 1.0 if task == "classification" else np.inf
    if not 0 <= noise <= largest or noise == np.inf:
        meaning = "a share of labels, 0 to 1" if task == "classification" else "0 or more"
        raise UserError(f"noise = {noise}: for {task} it is {meaning}")

    k = classes if task == "classification" else 0
    return Dataset(
        name="synthetic",
        train=problems[task]("train", samples),
        test=problems[task]("test", max(1, samples // 4)),
        classes=k,
        class_names=tuple(f"class {i}" for i in range(k)),
        mean=(0.0,),
        std=(1.0,),
    )


def least_squares_optimum(samples: Samples) -> npt.NDArray[np.float64]:
    """The w that minimises the sum of (<a, w> - y)², without intercept, in float64 [features]."""
    a = samples.x.reshape(len(samples), -1).astype(np.float64)
    return np.linalg.lstsq(a, samples.y.astype(np.float64))[0].astype(np.float64)


def _features(task: str, part: str, n: int, features: int) -> npt.NDArray[np.float32]:
    draw = rng.stream(0, "synthetic", task, part, "features")
    return draw.standard_normal((n, features), dtype=np.float32)


def _truth(task: str, shape: tuple[int, ...]) -> Array:
    return rng.stream(0, "synthetic", task, "truth").standard_normal(shape)


def _softmax(part: str, n: int, features: int, classes: int, noise: float) -> Samples:
    a = _features("classification", part, n, features)
    W = _truth("classification", (classes, features)) * LOGIT_SCALE / np.sqrt(features)
    draw = rng.stream(0, "synthetic", "classification", part, "labels")
    # Gumbel's trick: the largest of logit + Gumbel noise is a draw from the softmax.
    y = np.argmax(a @ W.T + draw.gumbel(size=(n, classes)), axis=1)
    uniform = draw.random(n) < noise
    y = np.where(uniform, draw.integers(classes, size=n), y)
    return Samples(a, y.astype(np.int64))


def _linear(part: str, n: int, features: int, noise: float) -> Samples:
    a = _features("regression", part, n, features)
    w = _truth("regression", (features,))
    draw = rng.stream(0, "synthetic", "regression", part, "labels")
    y = a @ w + noise * draw.standard_normal(n)
    return Samples(a, y.astype(np.float32))
