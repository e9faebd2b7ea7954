"""The outcome of a run, as it stands in summary.json."""

from collections import Counter
from typing import Any

from basil.data import Dataset
from basil.engine.process import Work
from basil.experiment.cast import Cast
from basil.protocol.calendar import AGGREGATION, MULTICAST
from basil.protocol.schemes import RING, RINGS, runs_on
from basil.recipe import Recipe
from basil.record import run_folder
from basil.record.recorder import Recorder


def summarise(
    recipe: Recipe,
    cast: Cast,
    data: Dataset,
    local_steps: int,
    recorder: Recorder,
    done: Work,
) -> dict[str, Any]:
    counts, last = recorder.counts, recorder.last
    choices = counts["choices"]
    on_rings = runs_on(recipe.scheme.name) in (RING, RINGS)
    summary = {
        "scheme": recipe.scheme.name,
        "rule": recipe.scheme.rule,
        "attack": recipe.attack.name,
        "dataset": data.name,
        "partition": recipe.data.partition,
        "classes": data.classes,
        "nodes": recipe.ring.nodes,
        "byzantine": len(cast.byzantine),
        "connectivity": cast.connectivity if on_rings else None,
        "groups": recipe.groups,
        "graph": recipe.graph.name if cast.graph else None,
        "rounds": recipe.scheme.rounds,
        "local_steps": local_steps,
        "seed": recipe.seed,
        "accuracy": last["accuracy"],
        "loss": last["loss"],
        # Shares of the turns in which one model was chosen: schemes that average choose none.
        "selection": {
            what: counts[what] / choices if choices else None for what in ("byzantine", "nearest")
        },
        "selection_between_groups": _between_groups(counts),
        "messages": {"count": done.messages, "bytes": done.bytes},
        "work": {
            "evaluations": done.evaluations,
            "steps": done.steps,
            "distances": done.distances,
        },
        "seconds": round(recorder.seconds, 3),
        "virtual_seconds": recorder.time,
        "model_sha256": run_folder.models_sha256(recorder.models),
    }
    if "attack_success" in last:
        summary["attack_success"] = last["attack_success"]
    if recipe.groups == 1:
        del summary["selection_between_groups"]
    return summary


def _between_groups(counts: Counter[str]) -> dict[str, float | None]:
    """Shares of the choices in which a liar's model was taken, in the stages after the rings."""
    return {
        stage: counts[f"{stage} byzantine"] / made if (made := counts[f"{stage} choices"]) else None
        for stage in (AGGREGATION, MULTICAST)
    }
