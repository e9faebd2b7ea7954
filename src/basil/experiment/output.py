"""What a run leaves in its folder: facts at its beginning, records, and at its end a summary."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from basil.data import BROUGHT, DATASETS
from basil.engine.process import Work
from basil.experiment.setup import Setup
from basil.foreign import whereabouts
from basil.protocol.numbering import AGGREGATION, MULTICAST
from basil.protocol.schemes import RING, RINGS, runs_on
from basil.recipe import code_of
from basil.recipe.schema import away_in
from basil.record import run_folder
from basil.record.evaluate import Evaluation
from basil.record.provenance import surroundings
from basil.record.recorder import Hooks, Recorder, Reports

LINE, SLACK = 32, 1 << 20  # bytes: of a turn in selections.csv and metrics.jsonl; of all else


def facts_of(setup: Setup) -> dict[str, Any]:
    """What is known before the run."""
    return {
        **surroundings(setup.device),
        "parameters": setup.compute.layout.size,
        "layout": setup.compute.layout.fingerprint,
        "initial_sha256": run_folder.models_sha256({0: setup.compute.initial}),
        "classes": setup.data.classes,
        **setup.participants.facts(),
        **_extensions(setup),
        **_own_data(setup),
        **({"metrics": better} if (better := {m.name: m.better for m in setup.metrics}) else {}),
    }


def _extensions(setup: Setup) -> dict[str, Any]:
    """What the recipe names that Basil does not ship, and where it may lie."""
    code = code_of(setup.recipe)
    return {"extensions": code, "folders": whereabouts().folders} if code else {}


def _own_data(setup: Setup) -> dict[str, Any]:
    """What the data was, where Basil does not ship it."""
    name = setup.recipe.data.dataset
    shipped = name not in BROUGHT and DATASETS.digest(name) is None
    return {} if shipped else {"data": setup.data.facts()}


def room_for(setup: Setup, models: int | None = None) -> int:
    """The bytes that a run may need at a time, about: a checkpoint beside the last one or two.

    models: in a peer's checkpoint.  The simulator's has at most some of each node, and the last two
    are kept.  In the end it is fewer.
    """
    recipe, participants = setup.recipe, setup.participants
    checkpoints = 2
    if models is None:
        checkpoints = 3
        models = len(participants.members) * (3 if participants.graph is None else 5)
    turns = recipe.ring.nodes * recipe.scheme.rounds
    return checkpoints * 4 * setup.compute.layout.size * models + LINE * turns + SLACK


def recorder_of(
    setup: Setup, folder: Path, hooks: Hooks, expected: Callable[[int], int] | None = None
) -> Recorder:
    """Who writes down what the members report; `expected`: how many of them in a round."""
    participants, recipe = setup.participants, setup.recipe
    members, events = participants.members, participants.events
    reports = Reports(
        nodes=[node for node in participants.ring.order if node in members],
        byzantine=participants.byzantine,
        ring_of=participants.ring_of,
        rounds=recipe.scheme.rounds,
        expected=expected or (lambda k: len(members) - away_in(k, events)),
    )
    evaluation = Evaluation(
        setup.compute,
        setup.test,
        samples=setup.test_samples,
        due=recipe.evaluated_in,
        triggered=setup.triggered,
        metrics=setup.metrics,
    )
    return Recorder(folder, reports, evaluation, hooks, recipe.record.checkpoint)


def conclude(setup: Setup, recorder: Recorder, done: Work, more: dict[str, Any]) -> dict[str, Any]:
    """Write the final models and the summary, the last thing that a run leaves."""
    summary, folder = {**_summarise(setup, recorder, done), **more}, recorder.folder
    if setup.recipe.record.models:
        run_folder.save_models(folder / run_folder.MODELS, recorder.models, setup.compute.layout)
    run_folder.write_json(folder / run_folder.SUMMARY, summary, durable=True)
    return summary


def _summarise(setup: Setup, recorder: Recorder, done: Work) -> dict[str, Any]:
    recipe, participants, data = setup.recipe, setup.participants, setup.data
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
        "byzantine": len(participants.byzantine),
        "connectivity": participants.connectivity if on_rings else None,
        "groups": recipe.groups,
        "graph": recipe.graph.name if participants.graph else None,
        "rounds": recipe.scheme.rounds,
        "local_steps": setup.node_data.steps_in_a_turn(),
        "seed": recipe.seed,
        "accuracy": last["accuracy"],
        "loss": last["loss"],
        **{metric.name: last[metric.name] for metric in setup.metrics},
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
    """Shares of the choices in which a Byzantine model was taken, in the stages after the rings."""
    return {
        stage: counts[f"{stage} byzantine"] / made if (made := counts[f"{stage} choices"]) else None
        for stage in (AGGREGATION, MULTICAST)
    }
