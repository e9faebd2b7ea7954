"""All figures that were reproduced, on one page: Markdown, and HTML where jinja2 is there."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from basil.recipe.figure import rank
from basil.reporting.reproduction import FACTS, PICTURE, README, read_facts, verdict_lines
from basil.reporting.verdict import AGREES, DIFFERS

PAGE = "index.html"


def write_set(out: Path, html: bool = True) -> list[Path]:
    """Write the page of all reproductions below `out`; returns what was written."""
    folders = sorted((mark.parent for mark in out.glob(f"*/{FACTS}")), key=lambda f: rank(f.name))
    found = [(folder, read_facts(folder)) for folder in folders]
    text = out / README
    text.write_text(_markdown(found), encoding="utf-8")
    if not html or find_spec("jinja2") is None:
        return [text]
    page = out / PAGE
    page.write_text(_html(found), encoding="utf-8")
    return [text, page]


def count(facts: dict[str, Any]) -> str:
    """5 agree, 1 differs, 2 open"""
    outcomes = [verdict["outcome"] for verdict in facts["verdicts"]]
    agree, differ = outcomes.count(AGREES), outcomes.count(DIFFERS)
    said = [f"{agree} agree{'s' * (agree == 1)}", f"{differ} differ{'s' * (differ == 1)}"]
    if agree + differ < len(outcomes):
        said.append(f"{len(outcomes) - agree - differ} open")
    return ", ".join(said)


def _markdown(found: list[tuple[Path, dict[str, Any]]]) -> str:
    lines = [
        "# The paper's figures, reproduced",
        "",
        "| figure | what | size | verdicts |",
        "| --- | --- | --- | --- |",
    ]
    for folder, facts in found:
        name = f"[{folder.name}]({folder.name}/{README})"
        lines.append(f"| {name} | {facts['title']} | {facts['size']} | {count(facts)} |")
    for folder, facts in found:
        lines += ["", f"## {folder.name}: {facts['title']}", "", facts["claim"], ""]
        if (folder / f"{PICTURE}.png").exists():
            lines += [f"![{facts['title']}]({folder.name}/{PICTURE}.png)", ""]
        lines += verdict_lines(facts)
    return "\n".join(lines) + "\n"


def _html(found: list[tuple[Path, dict[str, Any]]]) -> str:
    from basil.reporting.page import inline, template

    entries = []
    for folder, facts in found:
        svg = folder / f"{PICTURE}.svg"
        picture = None
        if svg.exists():
            picture = inline(svg.read_text(encoding="utf-8"), folder.name, facts["title"])
        entries.append({"name": folder.name, "facts": facts, "svg": picture, "count": count(facts)})
    text: str = template("reproductions.html.j2").render(entries=entries)
    return text
