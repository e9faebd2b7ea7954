"""Metrics that a recipe names: recorded, agreed on, drawn; and one sentence where one is wrong."""

import itertools
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
import torch
from torch import Tensor

import basil
from basil import foreign, register, testing
from basil.cli import main
from basil.experiment import Custom, Hooks, Interrupted, Simulation, set_up
from basil.experiment.metrics import TAKEN
from basil.learning.compute import Compute
from basil.learning.metrics import METRICS
from basil.recipe import code_of, fingerprint, load, parse, to_toml, to_tree
from basil.record.callback import flat
from basil.record.read import read_run
from basil.reporting.results_table import result_rows, results_table

from other_package import DOCUMENT, block

RECIPE: dict[str, Any] = {
    "data": {"dataset": "synthetic", "samples": 200},
    "ring": {"nodes": 5, "byzantine": 1, "connectivity": 2},
    "scheme": {"rounds": 4},
    "learning": {"model": "softmax", "batch": 8, "rate": 0.3},
    "attack": {"name": "gaussian"},
    "record": {"every": 2},
}
MINE = '''
import torch

def hits(outputs, targets, *, k: int = 1):
    """How often the truth is among the k that are said first."""
    return (outputs.topk(k, dim=1).indices == targets[:, None]).any(1)

def misses(outputs, targets, *, k: int = 1):
    """How often it is not."""
    return ~hits(outputs, targets, k=k)

misses.better = "lower"

def other(outputs, targets, *, k: int = 2):
    return 0.0

def accuracy(outputs, targets):
    return 0.0

def by_class(outputs, targets):
    return outputs.mean(0)

def fails(outputs, targets):
    raise LookupError("no such luck")

def upside_down(outputs, targets):
    return 0.0

upside_down.better = "down"
'''


@pytest.fixture(autouse=True)
def _study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(foreign, "_folders", [])
    monkeypatch.setattr(METRICS, "_foreign", {})
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    yield
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in (getattr(module, "__file__", None) or ""):
            del sys.modules[name]


def asking(*names: str, **options: Any) -> dict[str, Any]:
    return {**RECIPE, "record": {"every": 2, "metrics": list(names), **options}}


def test_each_is_recorded_with_its_worst_and_mean() -> None:
    names = ("mine.py:hits", "mine.py:misses", "error")
    result = basil.run(asking(*names), out="run")
    run = read_run(Path("run"))
    assert len(run.metrics) == 3
    for line in [*run.metrics, result.summary]:
        accuracy, hits, misses = line["accuracy"], line["hits"], line["misses"]
        assert hits == pytest.approx(accuracy)
        assert misses == pytest.approx({of: 1 - share for of, share in accuracy.items()})
        assert misses == pytest.approx(line["error"])
    last = result.summary
    assert last["hits"]["worst"] < last["hits"]["mean"]
    assert last["misses"]["worst"] > last["misses"]["mean"]
    assert run.facts["metrics"] == {"hits": "higher", "misses": "lower", "error": "lower"}
    assert list(run.facts["extensions"]) == ["metric mine.py:hits", "metric mine.py:misses"]
    assert flat(last)["misses/worst"] == last["misses"]["worst"]  # so it stands in sweep.csv


def test_options_stand_beside_the_names() -> None:
    recipe = parse(asking("mine.py:hits", "mine.py:misses", k=2))
    assert parse(to_tree(recipe)).record == recipe.record
    assert "\nk = 2\n" in to_toml(recipe)
    summary = Simulation(set_up(recipe)).run(Path("run"))
    assert summary["hits"]["worst"] == pytest.approx(1 - summary["misses"]["worst"])
    assert summary["hits"]["worst"] > summary["accuracy"]["worst"]


def test_without_any_nothing_is_recorded_and_no_output_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*args: Any) -> None:
        raise AssertionError("outputs were collected")

    tested = Compute._tested
    monkeypatch.setattr(
        Compute,
        "_tested",
        lambda self, models, pool, samples, seen=None: (
            tested(self, models, pool, samples) if seen is None else never()
        ),
    )
    basil.run(RECIPE, out="run")
    assert "metrics" not in Path("run/recipe.toml").read_text()
    assert "metrics" not in json.loads(Path("run/run.json").read_text())
    assert set(read_run(Path("run")).metrics[0]) <= set(TAKEN)
    assert fingerprint(parse(RECIPE)) == fingerprint(parse(asking()))
    with pytest.raises(AssertionError, match="collected"):
        basil.run(asking("error"), out="other")


def test_what_is_measured_changes_no_model_and_not_the_rest() -> None:
    plain, asked = basil.run(RECIPE, out="plain"), basil.run(asking("auc"), out="asked")
    mine = {**asked.summary}
    del mine["auc"]
    for summary in (mine, plain.summary):
        summary["seconds"] = 0
    assert mine == plain.summary


@pytest.mark.parametrize(
    "more",
    [
        {"scheme": {"name": "basil+", "rounds": 2}, "ring": {"nodes": 8, "groups": 2}},
        {"attack": {"name": "backdoor"}, "data": {"dataset": "digits"}},
        {"sharing": {"alpha": 0.2}},
        {"scheme": {"name": "g-plain", "rounds": 2}, "ring": {"nodes": 8}},
    ],
)
def test_no_metric_can_take_the_place_of_what_a_run_records(more: dict[str, Any]) -> None:
    result = basil.run({**RECIPE, **more}, out="run")
    assert {*result.summary, *read_run(Path("run")).metrics[0]} <= set(TAKEN)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["macro_f1"], "metric 'macro_f1' does not exist; did you mean 'macro-f1'?"),
        (["mine.py:hit"], "metric 'mine.py:hit'"),
        (["nowhere.py:hits"], "metric 'nowhere.py:hits'"),
        (["auc", 3], "metrics = 3: it must be a string"),
        ("auc", 'metrics = "auc": it must be a list'),
        (["mine.py:accuracy"], "metric 'accuracy': a run records another accuracy; rename it"),
        (["auc", "auc"], "metric 'auc': a run records another auc; rename it"),
        (["mine.py:hits", "mine.py:other"], "metrics: option 'k' has two defaults; rename one"),
        (["mine.py:by_class"], "it must return one number, or one for each of"),
        (["mine.py:fails"], "metric 'fails': it cannot be computed"),
        (["mine.py:fails"], "no such luck"),
        (["mine.py:upside_down"], "better = 'down': it must be higher or lower"),
        (["mae"], "metric 'mae': it cannot be computed"),
    ],
)
def test_what_is_wrong_is_one_sentence_before_the_run(names: Any, sentence: str) -> None:
    with pytest.raises(basil.UserError) as error:
        basil.run(RECIPE, set={"record.metrics": names}, out="run")
    assert sentence in str(error.value)
    assert not Path("run").exists()


def test_one_that_needs_all_classes_is_tried_with_all_samples() -> None:
    """The first samples may be of one class: that is no fault of the metric."""

    def all_there(outputs: Tensor, targets: Tensor) -> float:
        if len(targets.unique()) < outputs.shape[1]:
            raise ValueError("a class is missing")
        return 1.0

    assert basil.run(RECIPE, out="run", metrics=[all_there]).summary["all_there"]["mean"] == 1.0


def test_functions_from_python_and_what_a_resumed_run_wants() -> None:
    def largest(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.amax(1)

    largest.better = "lower"  # type: ignore[attr-defined]
    whole = basil.run(asking("auc"), out="whole", metrics=[largest])
    setup = set_up(parse(asking("auc")), Custom(metrics=(largest,)))
    turns = itertools.count()
    with pytest.raises(Interrupted):
        Simulation(setup).run(Path("part"), Hooks(stop=lambda: next(turns) > 8))
    with pytest.raises(basil.UserError, match="other metrics: resume it with the same"):
        basil.resume("part")
    again = basil.resume("part", metrics=[largest])
    assert again.summary["largest"] == whole.summary["largest"]
    assert again.summary["auc"] == whole.summary["auc"]
    with pytest.raises(basil.UserError, match="'auc' is no function with a name"):
        basil.run(RECIPE, out="named", metrics=["auc"])  # type: ignore[list-item]


def test_registered_ones_have_a_short_name_and_a_direction() -> None:
    @register.metric("spread", better="lower")
    def spread(outputs: Tensor, targets: Tensor) -> Tensor:
        """Largest minus smallest output."""
        return outputs.amax(1) - outputs.amin(1)

    assert METRICS.summary("spread") == "Largest minus smallest output."
    found = basil.run(asking("spread"), out="run").summary["spread"]
    assert found["worst"] > found["mean"] > 0


def test_its_source_is_part_of_what_a_recipe_is() -> None:
    one = load(asking("mine.py:hits"))
    before = fingerprint(one), code_of(one)
    Path("mine.py").write_text(MINE + "\n# changed\n")
    METRICS._foreign.clear()
    sys.modules.pop("mine", None)
    other = load(asking("mine.py:hits"))
    assert list(code_of(other)) == list(before[1])
    assert fingerprint(other) != before[0]


def test_a_node_whose_model_is_not_a_number_has_no_value() -> None:
    """And the worst of all is unknown then, wherever that node stands."""
    from basil.record.evaluate import Evaluation, evaluate

    setup = set_up(parse(asking("auc", "perplexity", "mine.py:hits")))
    good = setup.compute.initial
    bad = torch.full_like(good, torch.nan)
    on = Evaluation(setup.compute, setup.test, 20, metrics=setup.metrics)
    for models in ([good, bad], [bad, good]):
        found = evaluate(models, on).wait()
        assert found["auc"] == found["perplexity"] == found["loss"] == {"worst": None, "mean": None}
        assert found["hits"]["mean"] is not None  # like the accuracy, which counts what is said
    assert evaluate([good], on).wait()["auc"]["worst"] > 0


def test_tables_show_the_best_of_each() -> None:
    asked = asking("perplexity", "auc")
    basil.run(asked, out="runs/basil")
    basil.run(asked, set={"scheme.name": "r-plain"}, out="runs/plain")
    runs = [read_run(Path("runs", name)) for name in ("basil", "plain")]
    titles = results_table(runs)[0]
    place = titles.index("worst perplexity")
    assert titles[place : place + 4] == [
        "worst perplexity",
        "mean perplexity",
        "worst auc",
        "mean auc",
    ]
    rows = result_rows(runs)
    assert [row.cells[1].text for row in rows] == ["Basil", "R-plain"]
    for name, lower in (("perplexity", True), ("auc", False)):
        mine, theirs = (run.summary[name]["worst"] for run in runs if run.summary)
        assert mine != theirs
        best = [row.cells[titles.index(f"worst {name}")].best for row in rows]
        assert best == [(mine < theirs) == lower, (mine > theirs) == lower]


@pytest.mark.slow
def test_the_page_draws_each() -> None:
    basil.run(asking("perplexity", "auc"), out="run")
    paths = basil.report("run")
    drawn = {path.name for path in paths.figures}
    assert {"accuracy.png", "metric-perplexity.svg", "metric-auc.svg"} <= drawn
    assert "Test perplexity over rounds" in paths.page.read_text()


def test_a_result_has_them() -> None:
    result = basil.run(asking("perplexity"), out="run")
    for metric in ("perplexity", "loss"):
        figure = result.plot(metric=metric)
        assert isinstance(figure, matplotlib.figure.Figure)
        [drawn] = figure.axes[0].lines
        lines = read_run(Path("run")).metrics
        expected = [entry[metric]["worst"] for entry in lines]
        assert np.asarray(drawn.get_ydata()).tolist() == expected
    with pytest.raises(basil.UserError, match="'auc'; what can be asked for: accuracy, loss, perp"):
        result.plot(metric="auc")


def test_the_example_of_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    Path("scores.py").write_text(block("from torch import Tensor\n"))
    [line] = [line for line in DOCUMENT.splitlines() if "scores.py:top" in line]
    changes = shlex.split(line)[3:7]
    assert main(["run", "demo", *changes, "-s", "scheme.rounds=2", "--out", "run", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["accuracy"]["worst"] < summary["top"]["worst"] < 1
    assert summary["auc"]["worst"] > 0.1


def test_the_checks_know_them() -> None:
    testing.check_metric("macro-f1")
    testing.check_metric("mine.py:hits", k=2)
    with pytest.raises(basil.UserError, match="one number"):
        testing.check_metric("mine.py:by_class")
