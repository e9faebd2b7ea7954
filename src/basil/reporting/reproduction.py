"""A figure of the paper, reproduced: a folder with picture, curves, verdicts, and where from.

    fig4/README.md            claim, picture, verdicts, table, commit, machine, command
    fig4/figure.png, .svg     in the paper's layout
    fig4/curves.csv           every measurement: mean and standard deviation over seeds
    fig4/reproduction.json    the same for programs, and for the page of all figures

Where matplotlib is absent the picture is left out; it can be drawn later, from the run folders.
"""

import csv
import io
import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from basil.recipe.figure import Figure
from basil.record.run_folder import write_json
from basil.reporting.results_table import mean_and_spread
from basil.reporting.run_groups import RunGroup
from basil.reporting.verdict import Traced, Verdict, unit_of

FACTS, README, CURVES, PICTURE = "reproduction.json", "README.md", "curves.csv", "figure"
METRICS = ("worst", "mean")
# As titles of figures have them.
DATA_TITLES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
}
LAST = ("rounds", "seeds", *METRICS)


@dataclass(frozen=True)
class Reproduction:
    figure: Figure
    command: str
    quick: bool
    data: str  # what was learned
    setting: str  # nodes, rounds
    traced: tuple[Traced, ...]
    verdicts: tuple[Verdict, ...]
    here: dict[str, Any]  # commit and machine, for what is computed without a run

    @property
    def title(self) -> str:
        """The figure's; where other data stands in for the paper's, it says so."""
        title = self.figure.title
        meant = DATA_TITLES.get(self.figure.base.get("data", {}).get("dataset", ""), "")
        used = DATA_TITLES.get(self.data, self.data)
        if not self.traced or not meant or used == meant:
            return title
        said = title.replace(meant, f"{used} for {meant}")
        return said[:1].upper() + said[1:]

    @property
    def size(self) -> str:
        if not self.traced:
            return "computed"
        seeds = max(each.seeds for each in self.traced)
        size = "quick" if self.quick else "full"
        return f"{size} size: {self.data}, {self.setting}, {seeds} seed{'s' * (seeds > 1)}"


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def write_reproduction(found: Reproduction, out: Path, vector: bool = True) -> Path:
    """Write out/fig4 and return it.  `vector`: the picture as SVG, too, which is large."""
    folder = out / found.figure.name
    folder.mkdir(parents=True, exist_ok=True)
    picture = can_draw() and any(run.metrics for each in found.traced for run in each.runs)
    if picture:
        _draw(found, folder, vector)
    if found.traced:
        (folder / CURVES).write_text(_curves(found), encoding="utf-8")
    facts = _facts(found)
    write_json(folder / FACTS, facts)
    (folder / README).write_text(_readme(facts, (folder / f"{PICTURE}.png").exists()), "utf-8")
    return folder


def _draw(found: Reproduction, folder: Path, vector: bool) -> None:
    from basil.reporting.curves import panels_figure
    from basil.reporting.plots import save

    figure = found.figure
    titles = {
        letter: f"({letter}) {panel.title}" if len(figure.panels) > 1 else panel.title
        for letter, panel in figure.panels.items()
    }
    cases = [
        RunGroup(each.label, titles[each.panel], each.runs, each.finished)
        for each in found.traced
        if each.runs
    ]
    metrics = {title: figure.metric_of(letter) for letter, title in titles.items()}
    picture = panels_figure(cases, metrics, figure.against, figure.columns, figure.quantity)
    _, svg = save(picture, folder / PICTURE)
    if not vector:
        svg.unlink()


def _curves(found: Reproduction) -> str:
    """Tidy: a row for each curve and measured round; shares in per cent."""
    text, quantity = io.StringIO(), found.figure.quantity
    rows = csv.writer(text, lineterminator="\n")
    names = [f"{m}_{what}" for m in METRICS for what in ("mean", "std")]
    rows.writerow(["panel", "curve", "label", "round", "seeds", *names, "virtual_seconds", "bytes"])
    for each in found.traced:
        by_round: dict[int, list[dict[str, Any]]] = {}
        for run in each.runs:
            for entry in run.metrics:
                by_round.setdefault(entry["round"], []).append(entry)
        for k, entries in sorted(by_round.items()):
            cells = [cell for metric in METRICS for cell in _cells(entries, metric, quantity)]
            costs = [
                f"{mean_and_spread([float(e.get(key) or 0) for e in entries])[0]:.6g}"
                for key in ("virtual_seconds", "bytes")
            ]
            rows.writerow([each.panel, each.curve, each.label, k, len(entries), *cells, *costs])
    return text.getvalue()


def _cells(entries: list[dict[str, Any]], metric: str, quantity: str) -> tuple[str, str]:
    values = [(entry.get(quantity) or {}).get(metric) for entry in entries]
    known = [unit_of(quantity) * float(value) for value in values if value is not None]
    if not known or len(known) < len(values):
        return "", ""
    mean, spread = mean_and_spread(known)
    return _number(mean), "" if spread is None else _number(spread)


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.0e}"  # of a run that went astray


def _facts(found: Reproduction) -> dict[str, Any]:
    figure, runs = found.figure, [run for each in found.traced for run in each.runs]
    titles = {letter: panel.title for letter, panel in figure.panels.items()}
    origins = [run.facts for run in runs] + ([found.here] if figure.number else [])
    return {
        "name": figure.name,
        "title": found.title,
        "claim": figure.claim,
        "says": figure.says,
        "quantity": figure.quantity,
        "at": list(figure.at),
        "note": figure.note,
        "size": found.size,
        "command": found.command,
        "commits": sorted({str(facts.get("commit") or "unknown") for facts in origins}),
        "machines": sorted({_machine(facts) for facts in origins}),
        "seconds": round(sum((run.summary or {}).get("seconds", 0) for run in runs), 1),
        "results": [
            {
                "panel": each.panel,
                "title": titles[each.panel],
                "curve": each.label,
                "round": max((e["round"] for run in each.runs for e in run.metrics), default=0),
                "rounds": each.rounds,
                "seeds": len(each.runs),
                **{metric: _last(each, metric, figure.quantity) for metric in METRICS},
                "then": [_then(each, k, figure.quantity) for k in figure.at],
                "success": _last(each, "worst", "attack_success"),
            }
            for each in found.traced
        ],
        "verdicts": [verdict.as_dict() for verdict in found.verdicts],
    }


def _machine(facts: dict[str, Any]) -> str:
    torch = (facts.get("versions") or {}).get("torch", "?")
    return f"{facts.get('machine', '?')} ({facts.get('device', '?')}), torch {torch}"


def _last(each: Traced, metric: str, quantity: str) -> str:
    cells = _cells([run.metrics[-1] for run in each.runs if run.metrics], metric, quantity)
    return " ± ".join(cell for cell in cells if cell) or "–"


def _then(each: Traced, k: int, quantity: str) -> str:
    """Worst / mean in round k, once all seeds have got there."""
    entries = [entry for run in each.runs for entry in run.metrics if entry["round"] == k]
    if not entries or len(entries) < len(each.runs):
        return "–"
    cells = (_cells(entries, metric, quantity) for metric in METRICS)
    return " / ".join(" ± ".join(filter(None, cell)) for cell in cells)


def _readme(facts: dict[str, Any], picture: bool) -> str:
    lines = [f"# {facts['title']}", "", f"**{facts['says']}:** {facts['claim']}", ""]
    if picture:
        lines += [f"![{facts['title']}]({PICTURE}.png)", ""]
    lines += verdict_lines(facts)
    if facts["note"]:
        lines += ["", facts["note"]]
    if facts["results"]:
        lines += [
            "",
            f"Test {facts['quantity']} over the benign nodes at the end"
            f"{', in per cent' * (unit_of(facts['quantity']) > 1)}"
            " (mean ± standard deviation over seeds):",
            "",
            _row("panel", "curve", *(f"round {k}" for k in facts["at"]), *LAST),
            _row(*["---"] * (2 + len(facts["at"]) + len(LAST))),
        ]
        for row in facts["results"]:
            rounds = str(row["rounds"])
            if row["round"] < row["rounds"]:
                rounds = f"{row['round']} of {rounds}"
            panel = f"({row['panel']}) {row['title']}"
            last = rounds, str(row["seeds"]), row["worst"], row["mean"]
            lines.append(_row(panel, row["curve"], *row["then"], *last))
        lines += _successes(facts["results"])
    lines += ["", f"- command: `{facts['command']}` ({facts['size']})"]
    for key, word in (("commits", "commit"), ("machines", "machine")):
        if facts[key]:
            lines.append(f"- {word}: {'; '.join(facts[key])}")
    if facts["seconds"]:
        lines.append(f"- computing time of all runs together: {facts['seconds']:.0f} s")
    return "\n".join(lines) + "\n"


def _successes(results: list[dict[str, Any]]) -> list[str]:
    """How often a backdoor's trigger works, where it was tried."""
    tried = [f"{r['curve']} {r['success']} ({r['panel']})" for r in results if r["success"] != "–"]
    said = (
        "Of the inputs with its trigger the backdoor turns, at the worst benign node, in per cent: "
    )
    return ["", f"{said}{', '.join(tried)}."] if tried else []


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def verdict_lines(facts: dict[str, Any]) -> list[str]:
    """As Markdown: a point for each verdict, and beneath it the reason, where one is known."""
    lines = []
    for each in facts["verdicts"]:
        verdict = Verdict(**each)
        lines.append(f"- {str(verdict).removesuffix(verdict.outcome)}**{verdict.outcome}**")
        if verdict.note and verdict.outcome != "agrees":
            lines.append(f"  ({verdict.note})")
    return lines


def read_facts(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    return facts
