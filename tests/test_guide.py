"""The documents name what the tables hold, their links lead somewhere, their examples work."""

import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import basil
from basil.attack import ATTACKS
from basil.cli import main, parser
from basil.protocol.rules import RULES
from basil.protocol.schemes import SCHEMES
from basil.recipe import load
from basil.recipe.sweep_plan import load_sweep
from basil.table import Table
from basil.topology import GRAPHS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
START_AND_RESEARCH = [
    ROOT / "README.md",
    *sorted((DOCS / "start").glob("*.md")),
    *sorted((DOCS / "research").glob("*.md")),
]
ALL = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", flags=re.DOTALL | re.MULTILINE)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in that language."""
    return [code for _, name, code in FENCE.findall(text_of(page)) if name == language]


def block(page: Path, beginning: str) -> str:
    """The block that begins like this."""
    [found] = [code for _, _, code in FENCE.findall(text_of(page)) if code.startswith(beginning)]
    return str(found)


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


# Tables.


@pytest.mark.parametrize(
    ("page", "table"),
    [("algorithms", SCHEMES), ("algorithms", GRAPHS), ("rules", RULES), ("attacks", ATTACKS)],
    ids=["schemes", "graphs", "rules", "attacks"],
)
def test_a_page_lists_every_entry_with_its_options(page: str, table: Table[Any]) -> None:
    lines = text_of(DOCS / "research" / f"{page}.md").splitlines()
    for name in table:
        rows = [line for line in lines if re.match(rf"\| [^|]*`{re.escape(name)}`[^|]* \|", line)]
        assert len(rows) == 1, name
        options = rows[0].rsplit("|", 2)[1]
        assert all(f"`{option}`" in options for option in table.options(name)), name


# Links.


def anchors(page: Path) -> set[str]:
    """Of the headings of a page, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text_of(page)), flags=re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", ALL, ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^()\s]+)\)", FENCE.sub("", text_of(page))):
        path, _, anchor = link.partition("#")
        if ":" not in path:
            target = Path(os.path.normpath(page.parent / path)) if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_documents_that_the_code_mentions_exist() -> None:
    folders = [ROOT / name for name in ("src", "tests", "recipes", "contrib", "benchmarks")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    for path in [*files, *ALL]:
        if path.suffix in {".py", ".toml", ".service", ".md", ""}:
            for mentioned in re.findall(r"\bdocs/[\w/-]+\.md\b", text_of(path)):
                assert (ROOT / mentioned).exists() or "docs/results/" in mentioned, (
                    path,
                    mentioned,
                )


# Commands.


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every `basil` command on a page that has no placeholder."""
    text = text_of(page)
    lines = [line for code in blocks(page, "sh") for line in code.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"(?<!`)`(basil [^`]*)`(?!`)", FENCE.sub("", text))
    for line in lines:
        if not line.strip().startswith("basil "):
            continue
        words = shlex.split(line, comments=True)[1:]
        if not re.search(r"[$…|]|\b[A-Z]{2,}\b", " ".join(words)):
            yield words


@pytest.mark.parametrize("page", START_AND_RESEARCH, ids=named)
def test_every_command_is_one(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for words in commands(page):
        if words[1:] in ([], ["up"]):
            continue  # `basil compare`: the name of a command
        args = parser().parse_args(words)
        home = import_module(getattr(args, "home", "basil.cli.commands"))
        assert callable(getattr(home, args.command))
        recipe = getattr(args, "recipe", None)
        if args.command in {"run", "compare"} and recipe and "/" not in recipe:
            if recipe.endswith(".toml") or page.name == "extending.md":
                continue  # of the reader's own: the tutorial's is run below, others in extending/
            assert load(recipe, args.set).ring.nodes > 0
        if args.command == "sweep" and "/" in args.sweep:
            assert load_sweep(args.sweep, args.set)


def small(words: list[str]) -> bool:
    """Does it run something that needs no files and no minutes?"""
    return words[:2] in (["run", "demo"], ["run", "groups"])


# Those of extending.md need its files: tests in extending/ lay them out and run them.
PLAIN = [page for page in START_AND_RESEARCH if page.name != "extending.md"]
SMALL = sorted({tuple(w) for page in PLAIN for w in commands(page) if small(w)})


@pytest.mark.slow
@pytest.mark.parametrize("words", SMALL, ids=" ".join)
def test_every_small_run_runs(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*words, "-s", "scheme.rounds=2", "-s", "record.test_samples=50"]) == 0


@pytest.mark.slow
def test_the_commands_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other, those that learn with two rounds; what needs data or a network of
    machines is parsed by the test above.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("basil.watch.start.serve", lambda *_: None)  # it would until Ctrl-C
    page = ROOT / "README.md"
    run = set()
    for line in (line for code in blocks(page, "sh") for line in code.splitlines()):
        if not line.startswith("basil "):
            continue
        words = shlex.split(line, comments=True)[1:]
        if words[0] in {"sweep", "data", "node"} or words[:2] == ["peers", "up"]:
            continue
        if words[0] in {"run", "compare", "reproduce"}:
            words += ["-s", "scheme.rounds=2", "-s", "record.test_samples=50"]
        assert main(words) == 0, line
        run.add(words[0])
    assert run == {"compare", "run", "watch", "report", "reproduce", "plan", "list", "peers"}
    assert "warning" not in capsys.readouterr().err


# Files.


def test_the_example_of_a_recipe_is_one(tmp_path: Path) -> None:
    (tmp_path / "example.toml").write_text(block(DOCS / "research/recipes.md", "seed = 0"))
    assert load(str(tmp_path / "example.toml"), []).ring.nodes == 20


def test_the_example_of_a_sweep_is_one(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(block(DOCS / "start/running.md", "[sweep]"))
    assert len(load_sweep(str(tmp_path / "sweep.toml"), [])) == 3 * 2 * 5 * 3


# Python.


def short(run: Any, recipe: Any, **settings: Any) -> Any:
    """Two rounds of a recipe."""
    return run(recipe, **{**settings, "set": {**settings.get("set", {}), "scheme.rounds": 2}})


@pytest.mark.filterwarnings("ignore:of the symmetries of this network none are known .LSTM")
@pytest.mark.parametrize(
    "page", [ROOT / "README.md", DOCS / "start/own.md", DOCS / "start/examples.md"], ids=named
)
def test_the_python_on_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(basil, "run", partial(short, basil.run))
    names: dict[str, Any] = {}
    for code in blocks(page, "python"):
        exec(code, names)
    assert list(tmp_path.glob("runs/*/summary.json"))


@pytest.mark.slow
def test_the_tutorial_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = DOCS / "start/tutorial.md"
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for _, language, code in FENCE.findall(text_of(page)):
        if language == "toml":
            Path("my-ring.toml").write_text(code)
        elif language == "sh":
            for line in code.splitlines():
                assert main(shlex.split(line)[1:]) == 0
        elif code.startswith("# net.py\n"):
            Path("net.py").write_text(code)
        elif language == "python":
            exec(code, names)
    assert names["result"].summary["accuracy"]["worst"] > 0.8
    assert (tmp_path / "runs/page/report.html").exists()


NOTEBOOK = DOCS / "start/tutorial.ipynb"


def code_cells() -> list[dict[str, Any]]:
    cells = json.loads(text_of(NOTEBOOK))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in code_cells():
        exec("".join(cell["source"]), names)
    assert names["mine"].summary["accuracy"]["worst"] > 0.8  # with a network of its own
    assert names["result"].summary["dataset"] == "tumours"  # and with data of its own
    assert names["result"].summary["accuracy"]["worst"] > 0.8


def test_the_notebook_was_executed_and_says_nothing_of_the_machine() -> None:
    cells = code_cells()
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {kind for cell in cells for out in cell["outputs"] for kind in out.get("data", ())}
    assert {"text/html", "image/png"} <= kinds
    assert all(output["output_type"] != "error" for cell in cells for output in cell["outputs"])
    assert not re.search(r"PosixPath\('/|(?<![\w+/])/(home|tmp|root|Users)/", text_of(NOTEBOOK))


def test_the_callback_for_weights_and_biases_says_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    run = SimpleNamespace(
        log=lambda values, step: said.append((step, values["accuracy/worst"])),
        summary={},
        finish=lambda: said.append("finished"),
    )
    begun: list[dict[str, Any]] = []

    def init(**settings: Any) -> SimpleNamespace:
        begun.append(settings)
        return run

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    names: dict[str, Any] = {}
    exec(block(DOCS / "start/running.md", "import wandb"), names)
    recipe = tomllib.loads(
        'data = { dataset = "synthetic", samples = 99 }\nring.nodes = 3\nscheme.rounds = 2\n'
        'learning = { model = "softmax", batch = 8 }\nrecord.every = 1'
    )
    result = basil.run(recipe, out=tmp_path / "mine", callbacks=[names["Wandb"]()])
    assert begun[0]["name"] == "mine"
    assert begun[0]["config"]["ring"]["nodes"] == 3
    assert [step for step, _ in said[:-1]] == [0, 1, 2]
    assert said[-2][1] == result.summary["accuracy"]["worst"] == run.summary["accuracy/worst"]
    assert said[-1] == "finished"
