"""What a recipe says of graphs and of the schemes that work on them."""

import tomllib
from typing import Any

import pytest

from basil.cli import main
from basil.errors import UserError
from basil.protocol.graph.mixing import MIXINGS
from basil.protocol.schemes import SCHEMES
from basil.recipe import load, parse, to_toml, vary
from basil.topology import GRAPHS, WEIGHTS


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_recipe_reads_back_as_it_was_written(scheme: str, graph: str) -> None:
    recipe = parse({"scheme": {"name": scheme}, "graph": {"name": graph, "weights": "metropolis"}})
    again = parse(tomllib.loads(to_toml(recipe)))
    assert (again.graph, again.scheme) == (recipe.graph, recipe.scheme)
    assert to_toml(again) == to_toml(recipe)
    assert again.graph.options == GRAPHS.options(graph)


def test_the_paper_s_graph_is_the_default() -> None:
    recipe = load("demo", ["scheme.name=ubar"])
    assert (recipe.graph.name, recipe.graph.options) == ("erdos-renyi", {"p": 0.4})
    assert recipe.scheme.options == {"keep_fraction": 0.33, "alpha": 0.5}


def test_another_scheme_leaves_the_old_ones_options_behind_and_the_graph_as_it_is() -> None:
    recipe = load("demo", ["scheme.name=ubar", "scheme.alpha=0.25", "graph.name=torus"])
    other = vary(recipe, "bridge", "none", 1)
    assert other.scheme.options == {"trim": -1}
    assert other.graph == recipe.graph
    assert vary(other, "basil", "none", 1).graph == recipe.graph


@pytest.mark.parametrize(
    ("section", "values", "sentence"),
    [
        ("graph", {"name": "tree"}, r"graph 'tree' does not exist; .*\[graph\]"),
        ("graph", {"weights": "metropolitan"}, "did you mean 'metropolis'"),
        ("graph", {"name": "torus", "p": 0.4}, r"unknown key 'p'.*\[graph\]"),
        ("graph", {"p": "much"}, 'p = "much": it must be a number'),
        ("scheme", {"name": "ubar", "keep_fractoin": 0.3}, "did you mean 'keep_fraction'"),
        ("scheme", {"name": "bridge", "trim": 1.5}, "trim = 1.5: it must be a whole number"),
        ("time", {"distance": -1.0}, "distance = -1.0: it must be 0 or more"),
    ],
)
def test_mistakes_are_said(section: str, values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        parse({section: values})


def test_graphs_and_weights_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for what, table in (("graphs", GRAPHS), ("weights", WEIGHTS), ("mixings", MIXINGS)):
        assert main(["list", what]) == 0
        printed = capsys.readouterr().out
        assert all(name in printed for name in table)


def test_ubar_runs_from_the_command_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    few = ["-s", "scheme.rounds=2", "-s", "record.every=1"]
    assert main(["run", "demo", "-s", "scheme.name=ubar", *few, "--out", out]) == 0
    assert "UBAR" in capsys.readouterr().out
    for against in ("megabytes", "seconds"):
        page = tmp_path / against
        assert main(["report", out, "--against", against, "--out", str(page)]) == 0
        assert (page / "figures/accuracy.png").exists()


def test_a_graph_that_cannot_be_is_one_sentence(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ["-s", "scheme.name=ubar", "-s", "graph.name=torus", "-s", "ring.nodes=13"]
    assert main(["run", "demo", *wrong, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "13 nodes are no rows × columns" in said
    assert not (tmp_path / "run").exists()
