"""How good are the benign nodes' models?"""

import math
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from basil.learning.compute import Compute
from basil.learning.pool import Pool


def evaluate(
    compute: Compute, models: Iterable[Tensor], test: Pool, samples: int
) -> dict[str, Any]:
    """Worst and mean test accuracy and loss over models (§VI reports the worst).

    Models that several nodes share are evaluated once.  Accuracy is None for regression; a loss
    that is not finite is None too, since JSON has no infinity.
    """
    results: dict[int, tuple[float, float]] = {}
    order = []
    for model in models:
        order.append(id(model))
        if id(model) not in results:
            results[id(model)] = compute.test(model, test, samples)
    losses = [results[i][0] for i in order]
    accuracies = [results[i][1] for i in order]
    return {
        "accuracy": {"worst": _finite(min(accuracies)), "mean": _finite(_mean(accuracies))},
        "loss": {"worst": _finite(max(losses)), "mean": _finite(_mean(losses))},
    }


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
