"""Run folders with known numbers, as the recorder would have written them."""

import json
from pathlib import Path
from typing import Any

RECIPE = """\
seed = {seed}

[data]
name = "digits"
partition = "iid"

[ring]
nodes = {nodes}
connectivity = {connectivity}

[scheme]
name = "{scheme}"

[attack]
name = "{attack}"

[record]
folder = "somewhere-{seed}"
"""


def write_run(
    folder: Path,
    *,
    scheme: str = "basil",
    attack: str = "gaussian",
    seed: int = 0,
    nodes: int = 6,
    byzantine: tuple[int, ...] = (2,),
    connectivity: int = 3,
    worst: tuple[float | None, ...] = (0.1, 0.5, 0.8),
    choices: tuple[tuple[int, int, int | None], ...] = ((1, 0, 5), (1, 1, 0), (1, 3, None)),
    finished: bool = True,
    recipe: str = RECIPE,
    **more: Any,
) -> Path:
    """A run whose mean accuracy is 0.02 above the worst and whose mean loss is 1 - worst."""
    folder.mkdir(parents=True)
    names = {"scheme": scheme, "attack": attack, "seed": seed}
    settings = {"nodes": nodes, "connectivity": connectivity}
    (folder / "recipe.toml").write_text(recipe.format(**names, **settings))
    facts = {
        "versions": {"torch": "2.9.1"},
        "commit": "abc1234",
        "device": "cpu",
        "threads": 1,
        "machine": "a machine",
        "order": list(range(nodes)),
        "byzantine": list(byzantine),
    }
    (folder / "run.json").write_text(json.dumps(facts))
    metrics = [{"round": place, **_measured(value)} for place, value in enumerate(worst)]
    lines = [json.dumps({**entry, "virtual_seconds": 1.5, "seconds": 0.5}) for entry in metrics]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    rows = [
        f"{turn},{node},{'' if chosen is None else chosen},{int(node in byzantine)}"
        for turn, node, chosen in choices
    ]
    (folder / "selections.csv").write_text(
        "".join(f"{row}\n" for row in ["round,node,chosen,byzantine", *rows])
    )
    if finished:
        summary = {
            **names,
            "dataset": "digits",
            "partition": "iid",
            **settings,
            "byzantine": len(byzantine),
            "rounds": len(worst) - 1,
            "local_steps": 1,
            **_measured(worst[-1]),
            "selection": {"byzantine": 0.25, "nearest": 0.2},
            "messages": {"count": 1200, "bytes": 3_400_000},
            "seconds": 4.5,
            "virtual_seconds": 12.3,
            "model_sha256": "f00d" * 16,
            **more,
        }
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def _measured(worst: float | None) -> dict[str, Any]:
    if worst is None:
        return {"accuracy": None, "loss": {"worst": 2.5, "mean": 2.0}}
    return {
        "accuracy": {"worst": worst, "mean": worst + 0.02},
        "loss": {"worst": 1.1 - worst, "mean": 1 - worst},
    }
