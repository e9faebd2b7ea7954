"""Several runs by turns in one process: each as if it were alone."""

from pathlib import Path
from typing import Any

import pytest

from basil import worker
from basil.compare import AT_ONCE, _shares, cases
from basil.experiment import Experiment, Machine
from basil.recipe import parse, to_tree
from basil.worker import run_tasks

TREE: dict[str, Any] = {
    "ring": {"nodes": 8, "byzantine": 2, "connectivity": 3},
    "scheme": {"rounds": 4},
    "learning": {"batch": 16},
    "attack": {"name": "gaussian"},
    "record": {"every": 2},
}


def together(out: Path) -> dict[str, Any]:
    todo = cases(parse(TREE), ["basil", "r-plain", "ubar"], ["gaussian", "label-flip"], [0], out)
    finished = run_tasks([(to_tree(c.recipe), str(c.folder)) for c in todo], Machine("cpu"))
    assert [error for _, error in finished] in ([None] * 6, ["interrupted"] * 6)
    return {c.name: summary for c, (summary, _) in zip(todo, finished, strict=True)}


def test_each_run_is_as_if_it_were_alone(tmp_path: Path) -> None:
    found = together(tmp_path / "together")
    for case in cases(parse(TREE), ["basil", "ubar"], ["gaussian", "label-flip"], [0], tmp_path):
        alone = Experiment(case.recipe, machine=Machine("cpu")).run(case.folder)
        assert alone["model_sha256"] == found[case.name]["model_sha256"]
        assert alone["selection"] == found[case.name]["selection"]


def test_all_of_them_stop_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = together(tmp_path / "whole")
    monkeypatch.setattr(worker, "_stopping", True)
    together(tmp_path / "stopped")
    monkeypatch.setattr(worker, "_stopping", False)
    found = together(tmp_path / "stopped")
    assert {name: s["model_sha256"] for name, s in found.items()} == {
        name: s["model_sha256"] for name, s in expected.items()
    }


def test_a_wrong_recipe_does_not_end_the_others(tmp_path: Path) -> None:
    wrong = to_tree(parse({**TREE, "learning": {"batch": 100_000}}))
    right = to_tree(parse(TREE))
    todo = [(wrong, str(tmp_path / "wrong")), (right, str(tmp_path / "right"))]
    (no_summary, sentence), (summary, nothing) = run_tasks(todo, Machine("cpu"))
    assert no_summary is None
    assert sentence is not None
    assert sentence.startswith("learning.batch = 100000")
    assert summary is not None
    assert nothing is None


def test_shares_are_even_and_not_too_large(tmp_path: Path) -> None:
    todo = cases(parse(TREE), ["basil", "r-plain"], ["gaussian"], range(30), tmp_path)
    for processes in (1, 2, 3):
        shares = _shares(todo, processes)
        assert sorted(c.name for share in shares for c in share) == sorted(c.name for c in todo)
        assert max(map(len, shares)) <= AT_ONCE
        assert len(shares) % processes == 0
