"""What a run measures beside loss and accuracy."""

from collections.abc import Iterable

from basil.errors import UserError
from basil.learning.metrics import Measure, Metric, metric_of, metrics_named
from basil.recipe import Recipe
from basil.record.recorder import WORK

# What a line of metrics.jsonl or a summary holds already.
TAKEN = (
    *("round", "accuracy", "loss", "attack_success", "virtual_seconds", "seconds", "work", *WORK),
    *("scheme", "rule", "attack", "dataset", "partition", "classes", "nodes", "byzantine", "seed"),
    *("connectivity", "groups", "graph", "rounds", "local_steps", "sharing", "model_sha256"),
    *("selection", "selection_between_groups", "folder"),
)


def choose_metrics(recipe: Recipe, brought: Iterable[Measure]) -> tuple[Metric, ...]:
    """The recipe's, and those that were brought along; no two are recorded under one name."""
    named = metrics_named(recipe.record.metrics, recipe.record.options)
    found = [*named, *map(metric_of, brought)]
    taken = set(TAKEN)
    for metric in found:
        if metric.name in taken:
            raise UserError(
                f"metric {metric.name!r}: a run records another {metric.name}; rename it"
            )
        taken.add(metric.name)
    return tuple(found)
