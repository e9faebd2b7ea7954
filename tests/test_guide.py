"""The guide names everything that the tables hold, and its examples work."""

import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import basil
from basil.protocol.schemes import SCHEMES
from basil.recipe.sweep import load_sweep
from basil.table import Table
from basil.topology import GRAPHS

GUIDE = (Path(__file__).parents[1] / "docs" / "guide.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", [SCHEMES, GRAPHS], ids=["schemes", "graphs"])
def test_the_guide_lists_every_entry_with_its_options(table: Table) -> None:  # type: ignore[type-arg]
    for name in table:
        rows = [line for line in GUIDE.splitlines() if line.startswith(f"| `{name}` |")]
        assert len(rows) == 1, name
        options = rows[0].rsplit("|", 2)[1]
        assert all(f"`{option}`" in options for option in table.options(name)), name


def block(beginning: str) -> str:
    """The example that begins like this."""
    [text] = re.findall(rf"```\w+\n({re.escape(beginning)}.*?)```", GUIDE, flags=re.DOTALL)
    return str(text)


def test_the_example_of_a_sweep_is_one(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(block("[sweep]"))
    assert len(load_sweep(str(tmp_path / "sweep.toml"), [])) == 3 * 2 * 5 * 3


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
    stub = SimpleNamespace(init=lambda **settings: begun.append(settings) or run)
    monkeypatch.setitem(sys.modules, "wandb", stub)  # type: ignore[arg-type]
    names: dict[str, Any] = {}
    exec(block("import wandb"), names)
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
