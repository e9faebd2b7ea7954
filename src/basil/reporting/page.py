"""One HTML page about a set of runs: no network, no second file, readable in ten years."""

import re
from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from basil.attack import ATTACKS
from basil.errors import UserError
from basil.protocol.schemes import SCHEMES
from basil.recipe import NO_ATTACK
from basil.record.disk import replacing, writing
from basil.record.read import Run, find_runs, metrics_of
from basil.reporting.anonymity import anonymity_figure
from basil.reporting.curves import accuracy_figure, metric_figure, quantity_of, success_figure
from basil.reporting.heatmap import heatmap_figure
from basil.reporting.plots import Figure, as_png, distance_figure, ring_figure, save
from basil.reporting.results_table import MISSING, NAMES, header, result_rows
from basil.reporting.run_groups import (
    ATTACK_TITLES,
    SCHEME_TITLES,
    SETTINGS,
    RunGroup,
    attack_name,
    cases,
    scheme_name,
    setting,
    title,
)

PAGE = "report.html"
METRIC = "metric-"  # begins the name of a metric's figure
MOST_RINGS = 12
MOST_NAMES = 6


@dataclass(frozen=True)
class ReportPaths:
    page: Path
    figures: list[Path]


def runs_below(folders: Iterable[str | Path]) -> list[Run]:
    """All runs in these folders, as `basil list` has their schemes and attacks; others last."""
    schemes, attacks = list(SCHEMES), [NO_ATTACK, *ATTACKS]

    def place(run: Run) -> tuple[int, int]:
        scheme, attack = setting(run, "scheme"), setting(run, "attack")
        return (
            schemes.index(scheme) if scheme in schemes else len(schemes),
            attacks.index(attack) if attack in attacks else len(attacks),
        )

    return sorted(find_runs([Path(folder) for folder in folders]), key=place)


def write_report(runs: Iterable[Run], out: Path, against: str = "rounds") -> ReportPaths:
    """Writes out/report.html, and its figures, as PNG and SVG, to out/figures.

    Curves are drawn against rounds, megabytes or seconds.
    """
    runs = list(runs)
    if not runs:
        raise UserError("there is no run to report on")
    with writing(out):
        return _written(runs, Path(out), against)


def _written(runs: list[Run], out: Path, against: str) -> ReportPaths:
    found = cases(runs)
    figures = _Figures(out / "figures")
    try:
        curve, quantity = accuracy_figure(runs, against=against), quantity_of(runs)
        curves = figures.add(quantity, curve, f"Test {quantity} over {against}")
    except UserError:  # nothing measured yet
        if against != "rounds":
            raise
        curves = None
    asked = []
    for name in metrics_of(runs):
        with suppress(UserError):  # not measured yet, or nowhere finite
            says = f"Test {name} over {against}"
            asked.append(figures.add(METRIC + slug(name), metric_figure(runs, name, against), says))
    try:
        heatmap = figures.add("heatmap", heatmap_figure(runs), "Worst benign accuracy, every case")
    except UserError:  # too few schemes or attacks for a picture
        heatmap = None
    try:
        success = figures.add("success", success_figure(runs, against), "Attack success")
    except UserError:  # nobody tried
        success = None
    try:
        owners = figures.add("anonymity", anonymity_figure(runs), "Possible owners of a sample")
    except UserError:  # nothing was shared
        owners = None
    text = template("page.html.j2").render(
        headline=_headline(found),
        settings=_common_settings(runs),
        unfinished=sum(not run.finished for run in runs),
        count=len(runs),
        curves=curves,
        asked=asked,
        success=success,
        owners=owners,
        heatmap=heatmap,
        header=header(runs),
        names=NAMES,
        rows=result_rows(runs),
        each_seed=result_rows(runs, each_seed=True) if len(found) < len(runs) else [],
        rings=[_ring(case, figures, place) for place, case in enumerate(_pictured(found), start=1)],
        details=[_details(case, run) for case in found for run in case.runs],
    )
    page = out / PAGE
    out.mkdir(parents=True, exist_ok=True)
    with replacing(page, shared=True) as partial:
        partial.write_text(text, encoding="utf-8")
    return ReportPaths(page, figures.written)


def as_html(runs: Iterable[Run]) -> str:
    """Table and curve alone, for a cell of a notebook."""
    runs = list(runs)
    try:
        curves = b64encode(as_png(accuracy_figure(runs))).decode()
    except UserError:  # nothing measured yet
        curves = ""
    rows = result_rows(runs)
    text: str = template("cell.html.j2").render(
        header=header(runs), names=NAMES, rows=rows, curves=curves
    )
    return text


class _Figures:
    """The folder of figures: every one is saved, remembered, and handed back for the page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[Path] = []

    def add(self, name: str, figure: Figure, says: str) -> Markup:
        png, svg = save(figure, self.folder / name)
        self.written += [png, svg]
        return inline(svg.read_text(encoding="utf-8"), name, says)


def inline(svg: str, name: str, says: str) -> Markup:
    """An SVG file as part of a page: ids its own, size left to the page, a text for who hears it.

    Matplotlib gives the same id to the same shape in every figure.  On one page the first would
    serve all, and vanish from all when its section is folded away.
    """
    svg = re.sub(r"<!--.*?-->\s*", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    opening, rest = svg.split(">", 1)
    width = re.search(r'\swidth="([\d.]+)pt"', opening)
    opening = re.sub(r'\s(width|height)="[\d.]+pt"', "", opening)
    if width:
        # Points to CSS pixels: as large as meant where there is room, smaller where not.
        opening += f' style="max-width:{float(width[1]) * 4 / 3:.0f}px"'
    return Markup(f'{opening} role="img" aria-label="{escape(says)}">{rest}')


def template(name: str) -> Any:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _headline(found: list[RunGroup]) -> str:
    runs = [case.runs[0] for case in found]
    schemes = dict.fromkeys(title(scheme_name(run), SCHEME_TITLES) for run in runs)
    attacks = dict.fromkeys(title(attack_name(run), ATTACK_TITLES) for run in runs)
    calm = [_lowered(attack) for attack in attacks if attack == ATTACK_TITLES["none"]]
    real = [_lowered(attack) for attack in attacks if attack != ATTACK_TITLES["none"]]
    return f"{_listed(_few(list(schemes), 'schemes'))}: {_listed(calm + _few(real, 'attacks'))}"


def _few(names: list[str], kind: str) -> list[str]:
    """The names, or how many there are, where a headline could not hold them."""
    return names if len(names) <= MOST_NAMES else [f"{len(names)} {kind}"]


def _lowered(attack: str) -> str:
    """Within a sentence; Gaussian keeps the capital of its name."""
    return attack if attack == "Gaussian" else attack[:1].lower() + attack[1:]


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _common_settings(runs: list[Run]) -> list[tuple[str, str]]:
    """Each setting with every value it has among the runs, numbers before names."""
    said = []
    for key, name in SETTINGS.items():
        values = {str(value): value for run in runs if (value := setting(run, key)) is not None}
        numbers = sorted(text for text, value in values.items() if isinstance(value, int | float))
        numbers.sort(key=lambda text: values[text])
        names = sorted(values.keys() - set(numbers))
        said.append((name, ", ".join([*numbers, *names]) or MISSING))
    return said


def _pictured(found: list[RunGroup]) -> list[RunGroup]:
    """At most a dozen, none of schemes that do not choose; first those where somebody lies."""
    chose = [case for case in found if len(case.runs[0].selections)]
    return sorted(chose, key=lambda case: not case.runs[0].byzantine)[:MOST_RINGS]


def _ring(case: RunGroup, figures: _Figures, place: int) -> dict[str, Any]:
    run = case.runs[0]
    name = _run_name(case, run)
    # The number keeps apart what looks alike once it is a file name.
    file = slug(f"{place:02d}-{case.label}-{case.attack}")
    return {
        "name": name,
        "ring": figures.add(f"ring-{file}", ring_figure(run), f"Ring and choices: {name}"),
        "distance": figures.add(
            f"distance-{file}",
            distance_figure(run),
            f"How far back the chosen model was: {name}",
        ),
    }


def slug(name: str) -> str:
    """For the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:60].strip("-")


def _details(case: RunGroup, run: Run) -> dict[str, Any]:
    facts = run.facts
    versions = facts.get("versions") or {}
    rows = {
        "folder": run.folder.name,
        "commit": facts.get("commit"),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "device": facts.get("device"),
        "threads": facts.get("threads"),
        "machine": facts.get("machine"),
        "model sha256": (run.summary or {}).get("model_sha256"),
    }
    shown = {key: MISSING if value in (None, "") else value for key, value in rows.items()}
    return {"name": _run_name(case, run), "facts": shown, "recipe": run.recipe_text}


def _run_name(case: RunGroup, run: Run) -> str:
    seed = setting(run, "seed")
    return f"{case.label} · {case.attack} · seed {MISSING if seed is None else seed}"
