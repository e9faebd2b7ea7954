"""The run folders of all nodes of a ring as one, for `basil report`.

Each peer knows its own turns only.  Where several folders are on one machine, after a try-out or
when somebody has collected them, they make one run like the simulator's: for each round the worst
and the mean of the benign nodes, all selections, all final models.
"""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file

from basil.errors import UserError
from basil.learning.metrics import worst_of
from basil.peer.run.recording import RUN
from basil.peer.run.status import node_folders
from basil.record.disk import save_tensors
from basil.record.read import OWN, SELECTION_COLUMNS, Run, metrics_of, read_run
from basil.record.recorder import WORK
from basil.record.run_folder import (
    FACTS,
    METRICS,
    MODELS,
    RECIPE,
    SELECTIONS,
    SUMMARY,
    models_sha256,
    write_json,
)


def merge(ring: Path, out: Path) -> Run:
    """All nodes that have a run folder, as one run in `out`."""
    runs = [read_run(f / RUN) for f in node_folders(ring) if (f / RUN / FACTS).exists()]
    if not runs:
        raise UserError(f"{ring}: no node has run yet")
    rings = {run.facts.get("ring") for run in runs}
    if len(rings) > 1:
        raise UserError(f"{ring} holds nodes of different rings: {', '.join(map(str, rings))}")
    byzantine = {run.facts["node"] for run in runs if run.facts["attack"] != "none"}
    benign = [run for run in runs if run.facts["node"] not in byzantine] or runs
    out.mkdir(parents=True, exist_ok=True)
    (out / RECIPE).write_text(benign[0].recipe_text, encoding="utf-8")
    write_json(out / FACTS, {**benign[0].facts, "node": None, "byzantine": sorted(byzantine)})
    lines = _metrics(benign, runs)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (out / METRICS).write_text(text, encoding="utf-8")
    (out / SELECTIONS).write_text(_selections(runs, byzantine), encoding="utf-8")
    digest = _models(benign, out / MODELS)
    finished = [run for run in benign if run.summary is not None]
    if finished:
        told = {run.facts["attack"] for run in runs} - {"none"}
        known = {
            "attack": ", ".join(sorted(told)) or "none",
            "byzantine": len(byzantine),
            **digest,
        }
        write_json(out / SUMMARY, {**_summary(finished, lines[-1]), **known})
    return read_run(out)


def _metrics(benign: list[Run], runs: list[Run]) -> list[dict[str, Any]]:
    """Of each round that some benign node has measured; work is everybody's."""
    lines, all_metrics = [], [run.metrics for run in runs]
    for k in sorted({entry["round"] for run in benign for entry in run.metrics}):
        theirs = [entry for run in benign for entry in run.metrics if entry["round"] == k]
        # Of each node its newest measurement up to that round.
        spent = [([e for e in m if e["round"] <= k] or m[:1])[-1] for m in all_metrics if m]
        lines.append(
            {
                "round": k,
                "accuracy": _over(min, [entry["accuracy"]["worst"] for entry in theirs]),
                "loss": _over(max, [entry["loss"]["worst"] for entry in theirs]),
                **{
                    name: _over(worst_of(better), [entry[name]["worst"] for entry in theirs])
                    for name, better in metrics_of(benign).items()
                },
                **{what: sum(entry[what] for entry in spent) for what in WORK},
                "virtual_seconds": max(entry["virtual_seconds"] for entry in theirs),
                "seconds": max(entry["seconds"] for entry in theirs),
            }
        )
    return lines


def _over(worst: Any, values: list[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return {"worst": None, "mean": None}
    return {"worst": worst(known), "mean": math.fsum(known) / len(known)}


def _selections(runs: list[Run], byzantine: set[int]) -> str:
    order = {node: place for place, node in enumerate(runs[0].order)}
    made = [run.selections for run in runs]
    rows = [row for s in made for row in zip(s.round, s.node, s.chosen, strict=True)]
    rows.sort(key=lambda row: (row[0], order[row[1]]))
    lines = [
        f"{k},{node},{'' if chosen == OWN else chosen},{int(node in byzantine)}"
        for k, node, chosen in rows
    ]
    return "\n".join([SELECTION_COLUMNS, *lines]) + "\n"


def _models(runs: Iterable[Run], path: Path) -> dict[str, str]:
    """All final models in one file.  Their digest is the simulator's, where the models are."""
    files = [run.folder / MODELS for run in runs if (run.folder / MODELS).exists()]
    if not files:
        return {}
    with safe_open(files[0], framework="pt") as first:
        layout = first.metadata()
    models = {name: model for file in files for name, model in load_file(file).items()}
    save_tensors(path, models, layout)
    by_node = {int(name.removeprefix("node-")): model for name, model in models.items()}
    return {"model_sha256": models_sha256(by_node)}


def _summary(finished: list[Run], last: dict[str, Any]) -> dict[str, Any]:
    """Of the whole ring; `last`: its last line of metrics."""
    summaries = [run.summary or {} for run in finished]
    shares = {
        what: _over(min, [s["selection"][what] for s in summaries])["mean"]
        for what in ("byzantine", "nearest")
    }
    return {
        **{k: v for k, v in summaries[0].items() if k not in ("sharing", "model_sha256")},
        "accuracy": last["accuracy"],
        "loss": last["loss"],
        **{name: last[name] for name in metrics_of(finished)},
        "selection": shares,
        "messages": {"count": last["messages"], "bytes": last["bytes"]},
        "work": {what: last[what] for what in ("evaluations", "steps", "distances")},
        "seconds": last["seconds"],
        "virtual_seconds": last["virtual_seconds"],
    }
