"""What a recipe can have measured on the test set, beside loss and accuracy.

An entry takes the outputs of a model for the whole test set and the targets, on the CPU.  It
returns one number, or one for each sample, whose mean counts.

An entry that states `finish` is asked for some samples at a time, where the model is: it returns as
many numbers as it likes, and `finish` of the mean over all of them counts.  The outputs of a
language model for a whole test set would take gigabytes.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from basil.errors import UserError
from basil.table import Table, states

Measure = Callable[..., float | Tensor]
HIGHER, LOWER = "higher", "lower"  # which of two values is the better one
IGNORED = -100  # a target that does not count, as in PyTorch


def _same(mean: float) -> float:
    return mean


def _exp(mean: float) -> float:
    return math.exp(mean) if mean < 700 else math.inf


@states(better=LOWER, finish=_exp)
def perplexity(outputs: Tensor, targets: Tensor) -> Tensor:
    """exp of the mean cross-entropy, of samples or of the tokens of sequences; lower is better."""
    return nn.functional.cross_entropy(*_known(outputs, targets), reduction="none")


@states(better=LOWER, finish=_same)
def error(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 − accuracy, of samples or of the tokens of sequences; lower is better."""
    rows, labels = _known(outputs, targets)
    return rows.argmax(1) != labels


def macro_f1(outputs: Tensor, targets: Tensor) -> Tensor:
    """F1 of each class, 2 · right / (said + true); the mean over classes that occur in either."""
    rows, labels = _known(outputs, targets)
    classes, said = rows.shape[1], rows.argmax(1)
    right = labels[said == labels].bincount(minlength=classes)
    either = said.bincount(minlength=classes) + labels.bincount(minlength=classes)
    return (2 * right.double() / either)[either > 0].mean()


def auc(outputs: Tensor, targets: Tensor) -> Tensor:
    """Area under the ROC curve; of several classes the mean, each against the rest.

    One output a sample is the score of class 1.  A class that all samples have, or none, has no
    curve and does not count.
    """
    if outputs.numel() == targets.numel():
        return _area(outputs.double().flatten(), targets.flatten() == 1)
    rows, labels = _known(outputs.double(), targets)
    areas = []
    for label in range(rows.shape[1]):
        rest = torch.cat([rows[:, :label], rows[:, label + 1 :]], dim=1)
        # Log-odds: in the order of the probabilities, and large ones do not become one.
        areas.append(_area(rows[:, label] - rest.logsumexp(1), labels == label))
    return torch.stack(areas).nanmean()


@states(better=LOWER)
def mean_absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """|output − target|, for regression; lower is better."""
    return (outputs - targets).abs()


def _known(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """[row, class] and the label of each row: samples, or tokens of sequences."""
    if outputs.shape[:-1] != targets.shape:
        raise ValueError("it is for classification, with one output for each class")
    known = targets != IGNORED
    return outputs[known], targets[known]


def _area(scores: Tensor, positive: Tensor) -> Tensor:
    """The share of pairs, one positive and one not, in order; ties count half (Mann–Whitney)."""
    _, place, count = scores.unique(return_inverse=True, return_counts=True)
    rank = (count.cumsum(0) - (count.double() - 1) / 2)[place]
    n = positive.sum()
    if scores.isnan().any():  # what is not a number has no rank
        return scores.new_tensor(torch.nan)
    area: Tensor = (rank[positive].sum() - n * (n + 1) / 2) / (n * (len(positive) - n))
    return area


METRICS: Table[Measure] = Table(
    "metric",
    {
        "perplexity": perplexity,
        "error": error,
        "macro-f1": macro_f1,
        "auc": auc,
        "mae": mean_absolute_error,
    },
    takes=("outputs", "targets"),
)


@dataclass(frozen=True)
class Metric:
    """A metric as a run measures it; `name` is its key in what the run records."""

    name: str
    measure: Measure
    better: str = HIGHER

    def __post_init__(self) -> None:
        if self.better not in (HIGHER, LOWER):
            raise UserError(
                f"metric {self.name!r}: better = {self.better!r}: it must be {HIGHER} or {LOWER}"
            )

    def __call__(self, outputs: Tensor, targets: Tensor) -> float:
        """Its value; nan for a model that has gone so far astray that it cannot be measured."""
        tally = Tally(self)
        tally.add(outputs, targets)
        return tally.value()

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What it says, as float64."""
        try:
            return torch.as_tensor(self.measure(outputs, targets)).double()
        except Exception as error:  # others' code may raise anything
            if not outputs.isfinite().all():
                return torch.tensor(torch.nan, dtype=torch.float64)
            why = next(iter(str(error).splitlines()), "") or type(error).__name__
            raise UserError(
                f"metric {self.name!r}: it cannot be computed from outputs of shape"
                f" {tuple(outputs.shape)} and targets of shape {tuple(targets.shape)}: {why}"
            ) from error


class Tally:
    """A metric of one model, while the samples of a test set go by."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._finish: Callable[[float], float] | None = getattr(metric.measure, "finish", None)
        self._total, self._count = 0.0, 0
        self._seen: list[tuple[Tensor, Tensor]] = []

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        if self._finish is None:
            self._seen.append((outputs.cpu(), targets.cpu()))
            return
        values = self.metric.values(outputs, targets)
        self._total += float(values.sum())
        self._count += values.numel()

    def value(self) -> float:
        if self._finish is not None:
            return self._finish(self._total / self._count) if self._count else math.nan
        outputs, targets = (torch.cat(parts) for parts in zip(*self._seen, strict=True))
        value = self.metric.values(outputs, targets)
        if value.shape not in ((), (len(targets),)):
            raise UserError(
                f"metric {self.metric.name!r}: it must return one number, or one for each of"
                f" {len(targets)} samples, not shape {tuple(value.shape)}"
            )
        return float(value.mean())


def metrics_named(names: Iterable[str], options: dict[str, Any]) -> list[Metric]:
    """Those of a recipe, each with its options; "file.py:recall" is recorded as recall."""
    found = []
    for name in names:
        known = METRICS.options(name)
        mine = {key: value for key, value in options.items() if key in known}
        found.append(_made(name.rpartition(":")[2], METRICS[name], mine))
    return found


def metric_of(measure: Measure) -> Metric:
    """One that was brought along from Python, under the name that it has there."""
    if not hasattr(measure, "__name__"):
        raise UserError(
            f"metrics: {measure!r:.60} is no function with a name; what has a name in a table"
            " belongs in record.metrics"
        )
    return _made(measure.__name__, measure, {})


def _made(name: str, measure: Measure, options: dict[str, Any]) -> Metric:
    better = getattr(measure, "better", HIGHER)
    bound: Measure = partial(measure, **options) if options else measure
    if bound is not measure and hasattr(measure, "finish"):
        states(finish=measure.finish)(bound)
    return Metric(name, bound, better)


def worst_of(better: str) -> Callable[[list[float]], float]:
    """What picks the worst of several values."""
    return max if better == LOWER else min
