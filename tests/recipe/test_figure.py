"""The files of the paper's figures: all can be read, in both sizes, and mistakes are said."""

import tomllib
from pathlib import Path

import pytest

from basil.data.sources import SOURCES
from basil.errors import UserError
from basil.recipe import load
from basil.recipe.figure import drawn, figures, load_figure

TINY = """
[ring]
nodes = 6
byzantine = 2

[attack]
name = "backdoor"
target = 3

[figure]
title = "A figure"
claim = "Something holds."
quick.scheme.rounds = 3
quick.ring.nodes = 4

[[figure.panel]]
title = "Backdoor"
set.ring.connectivity = 1
quick.ring.connectivity = 2

[[figure.panel]]
title = "Gaussian"
set.attack.name = "gaussian"

[[figure.curve]]
id = "basil"
name = "S = {ring.connectivity}, {ring.unknown}"

[[figure.curve]]
id = "r-plain"
panels = ["b"]
set = { scheme.name = "r-plain", ring.nodes = 5 }

[[figure.expect]]
panels = ["b"]
curve = "basil"
than = "r-plain"
at_least = 10
"""


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str = TINY):
        file = tmp_path / "mine.toml"
        file.write_text(text)
        return load_figure(str(file))

    return write


@pytest.mark.parametrize("name", figures())
def test_every_figure_makes_recipes_in_both_sizes_and_the_quick_one_needs_no_files(name):
    figure = load_figure(name)
    full, quick = drawn(figure), drawn(figure, quick=True)
    assert [(d.panel, d.curve) for d in full] == [(d.panel, d.curve) for d in quick]
    assert all(SOURCES[d.recipe.data.dataset] is None for d in quick)
    assert all(d.recipe.ring.nodes <= 160 and d.recipe.scheme.rounds <= 100 for d in quick)
    for size in (full, quick):  # a legend that says the same twice says nothing
        named = [(d.panel, d.label) for d in size]
        assert len(set(named)) == len(named)


def test_a_figure_may_be_like_another_and_say_what_differs_at_its_quick_size(written, tmp_path):
    written()
    (tmp_path / "other.toml").write_text("like = 'mine.toml'\n[figure.quick]\nring.byzantine = 1\n")
    quick = [curve.recipe for curve in drawn(load_figure(str(tmp_path / "other.toml")), quick=True)]
    assert [r.ring.nodes for r in quick] == [4, 4, 5]
    assert {(r.scheme.rounds, r.ring.byzantine) for r in quick} == {(3, 1)}


def test_the_figures_come_in_the_order_of_the_paper():
    names = list(figures())
    assert names.index("fig4") < names.index("fig10") < names.index("table3")


def test_the_recipes_are_the_papers_setting():
    """§VI-A: 100 nodes, 33 of them Byzantine, S = 10; App. H-E: 20, and S = 5."""
    for name, byzantine, S in (("fig4", 33, 10), ("fig5", 33, 10), ("fig14", 20, 5)):
        for each in drawn(load_figure(name)):
            ring = each.recipe.ring
            assert (ring.nodes, ring.byzantine, ring.connectivity) == (100, byzantine, S)
            assert (each.recipe.learning.rate, each.recipe.learning.options["decay"]) == (
                0.03,
                0.03,
            )


def test_two_figures_that_show_the_same_run_have_the_same_recipe():
    """Fig. 1 is made of curves of Fig. 4 and 5: nothing of it is computed twice."""
    there = [d.recipe for name in ("fig4", "fig5") for d in drawn(load_figure(name))]
    assert all(d.recipe in there for d in drawn(load_figure("fig1")))


def test_a_figure_is_a_recipe_too():
    assert load("paper/fig4").scheme.rounds == 500


def test_the_curve_is_changed_after_the_panel_and_the_quick_size_between(written):
    full = {(d.panel, d.curve): d for d in drawn(written())}
    assert full.keys() == {("a", "basil"), ("b", "basil"), ("b", "r-plain")}
    first = full["a", "basil"].recipe
    assert (first.ring.nodes, first.connectivity, first.scheme.rounds) == (6, 1, 60)
    assert first.attack.options["target"] == 3
    other = full["b", "r-plain"].recipe
    assert (other.ring.nodes, other.scheme.name) == (5, "r-plain")
    # Another attack leaves the options of the first behind.
    assert other.attack.options == {"std": 1.0}

    quick = {(d.panel, d.curve): d.recipe for d in drawn(written(), quick=True)}
    assert quick["a", "basil"].ring.nodes == 4
    assert quick["a", "basil"].connectivity == 2
    assert quick["b", "r-plain"].ring.nodes == 5  # the curve has the last word
    assert quick["b", "r-plain"].scheme.rounds == 3


def test_there_are_letters_for_more_panels_than_letters(written):
    more = "\n".join(f'[[figure.panel]]\ntitle = "No. {i}"' for i in range(3, 30))
    figure = written(TINY + more)
    assert list(figure.panels)[24:] == ["y", "z", "aa", "ab", "ac"]
    assert figure.panels["ac"].title == "No. 29"


def test_what_the_command_line_says_holds_for_all_curves(written):
    assert {d.recipe.scheme.rounds for d in drawn(written(), True, ["scheme.rounds=7"])} == {7}


def test_a_label_may_quote_the_recipe(written):
    assert drawn(written())[0].label == "S = 1, {ring.unknown}"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('title = "A figure"', "", "title is missing"),
        ("at_least = 10", "at_last = 10", "unknown key 'at_last': did you mean 'at_least'?"),
        ("at_least = 10", "", "an expectation needs at_least or at_most"),
        ("at_least = 10", 'at_least = "ten"', "it must be a number"),
        ('than = "r-plain"', 'than = "ubar"', "than = 'ubar': there are basil, r-plain"),
        ('panels = ["b"]\ncurve', 'panels = ["c"]\ncurve', "panels = 'c': there are a, b"),
        ('panels = ["b"]\ncurve', 'panels = ["a"]\ncurve', "curve 'r-plain' is not in panel a"),
        ("[figure]", 'metrics = "mean"\n[figure]', "unknown key 'metrics'"),
        ('claim = "', 'metric = "median"\nclaim = "', "metric = 'median': there are worst, mean"),
        ("quick.scheme.rounds = 3\nquick.ring.nodes = 4", "quick = 3", "quick must be a table"),
        ("set.ring.connectivity = 1", "set.ring.conectivity = 1", "unknown key 'conectivity'"),
    ],
)
def test_a_mistake_is_said_in_one_sentence(written, old, new, sentence):
    assert old in TINY
    with pytest.raises(UserError, match=r"(mine.toml|mine, panel)") as error:
        drawn(written(TINY.replace(old, new)))
    assert sentence in str(error.value)


def test_a_recipe_without_a_figure_is_refused():
    with pytest.raises(UserError, match=r"demo\.toml describes no figure"):
        load_figure("demo")


@pytest.mark.parametrize("name", figures())
def test_the_head_of_each_file_gives_figure_command_and_cost(name):
    text = figures()[name].read_text(encoding="utf-8")
    head = text[: text.index("\n\n")] if "\n\n" in text else text
    assert f"basil reproduce {name}" in head
    assert "Expected:" in head
    assert any(unit in head for unit in ("minute", "second"))
    assert "figure" in tomllib.loads(text)
