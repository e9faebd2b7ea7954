"""How good are the benign nodes' models?"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from basil.learning.compute import Compute, Tested
from basil.learning.metrics import HIGHER, LOWER, Metric, worst_of
from basil.learning.pool import Pool
from basil.learning.promises import Promise


@dataclass(frozen=True, eq=False)
class Evaluation:
    """On what models are measured, and after which rounds.

    `triggered`: samples on which a backdoor wants its own label.  The share that gets it is the
    attack's success; its worst is the highest.
    """

    compute: Compute
    test: Pool
    samples: int  # so many of the test set
    due: Callable[[int], bool] = lambda k: True  # after round k?
    triggered: Pool | None = None
    metrics: tuple[Metric, ...] = ()


def evaluate(models: Iterable[Tensor], on: Evaluation) -> Promise[dict[str, Any]]:
    """Worst and mean test accuracy, loss and metrics over models (§VI reports the worst).

    Models that several nodes share are evaluated once.  Accuracy is None for regression; what is
    not finite is None too, since JSON has no infinity.
    """
    models = list(models)
    distinct = {id(model): model for model in models}
    tested = on.compute.test(list(distinct.values()), on.test, on.samples, on.metrics)
    fooled = None
    if on.triggered is not None:
        some = min(on.samples, len(on.triggered))
        fooled = on.compute.test(list(distinct.values()), on.triggered, some)

    def each(promise: Promise[Tested], what: int, better: str) -> dict[str, float | None]:
        """One of the numbers, over all models: of a shared one as often as it occurs."""
        of = dict(zip(distinct, promise.wait(), strict=True))
        found = [of[id(model)][what] for model in models]
        return {"worst": _worst(worst_of(better), found), "mean": _mean(found)}

    def keep() -> dict[str, Any]:
        found = {"accuracy": each(tested, 1, HIGHER), "loss": each(tested, 0, LOWER)}
        for what, metric in enumerate(on.metrics, start=2):
            found[metric.name] = each(tested, what, metric.better)
        if fooled is not None:
            found["attack_success"] = each(fooled, 1, LOWER)
        return found

    return Promise(keep)


def _mean(values: list[float]) -> float | None:
    sane = values and all(map(math.isfinite, values))
    return math.fsum(values) / len(values) if sane else None


def _worst(pick: Callable[[list[float]], float], values: list[float]) -> float | None:
    """None for no values at all (a Byzantine peer's own run), or one that is not finite."""
    worst = pick(values) if values and not any(map(math.isnan, values)) else math.nan
    return worst if math.isfinite(worst) else None
