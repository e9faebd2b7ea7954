"""How good are the benign nodes' models?"""

import math
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from basil.learning.compute import Compute
from basil.learning.pool import Pool


def evaluate(
    compute: Compute,
    models: Iterable[Tensor],
    test: Pool,
    samples: int,
    triggered: Pool | None = None,
) -> dict[str, Any]:
    """Worst and mean test accuracy and loss over models (§VI reports the worst).

    `triggered`: samples on which a backdoor wants its own label.  The share that gets it is the
    attack's success; its worst is the highest.

    Models that several nodes share are evaluated once.  Accuracy is None for regression; a loss
    that is not finite is None too, since JSON has no infinity.
    """
    models = list(models)
    distinct = {id(model): model for model in models}
    results = compute.test(list(distinct.values()), test, samples)
    of = dict(zip(distinct, results, strict=True))
    losses, accuracies = (list(v) for v in zip(*(of[id(model)] for model in models), strict=True))
    found: dict[str, Any] = {
        "accuracy": {"worst": _finite(min(accuracies)), "mean": _finite(_mean(accuracies))},
        "loss": {"worst": _finite(max(losses)), "mean": _finite(_mean(losses))},
    }
    if triggered is not None:
        rates = compute.test(list(distinct.values()), triggered, min(samples, len(triggered)))
        success = {key: rate for key, (_, rate) in zip(distinct, rates, strict=True)}
        values = [success[id(model)] for model in models]
        found["attack_success"] = {"worst": max(values), "mean": _mean(values)}
    return found


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
