"""Several runs by turns in one process: each as if it were alone."""

import time
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from basil.experiment import Machine, Simulation, set_up
from basil.many import worker
from basil.many.cases import _shares, cases
from basil.many.round_robin import Sharing
from basil.many.round_robin import round_robin as by_turns
from basil.many.worker import run_tasks
from basil.recipe import parse, to_tree
from basil.record.read import read_run

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
        alone = Simulation(set_up(case.recipe, machine=Machine("cpu"))).run(case.folder)
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


def test_each_process_has_as_many_of_each_scheme(tmp_path: Path) -> None:
    todo = cases(parse(TREE), ["basil", "r-plain", "ubar"], ["gaussian"], range(8), tmp_path)
    for processes in (1, 2, 4):
        shares = _shares(todo, processes)
        assert sorted(c.name for share in shares for c in share) == sorted(c.name for c in todo)
        for share in shares:
            schemes = Counter(case.recipe.scheme.name for case in share)
            assert schemes == dict.fromkeys(["basil", "r-plain", "ubar"], 8 // processes)
            assert share[0].recipe.scheme.name == "ubar"  # it takes longest


def test_seeds_of_one_case_are_in_one_process(tmp_path: Path) -> None:
    """They ask for the same, so their work is one computation."""
    todo = cases(parse(TREE), ["basil"], ["gaussian", "inverse", "none"], range(4), tmp_path)
    mixed = sorted(todo, key=lambda case: case.recipe.seed)
    for share in _shares(mixed, 3):
        assert len({case.recipe.attack.name for case in share}) == 1
        assert [case.recipe.seed for case in share] == [0, 1, 2, 3]


def test_what_does_not_come_out_even_is_shared_as_well_as_it_can_be(tmp_path: Path) -> None:
    todo = cases(parse(TREE), ["basil", "r-plain", "ubar"], ["gaussian"], range(5), tmp_path)
    assert sorted(map(len, _shares(todo, 4))) == [3, 4, 4, 4]


@pytest.mark.parametrize(("alone", "together"), [(False, 3), (True, 1)])
def test_no_more_than_so_many_at_once_and_each_to_its_end(alone: bool, together: int) -> None:
    """Where one keeps the device busy, that is known once the first is at work."""
    begun, ended, most = 0, 0, 0

    def run(instants: int) -> Iterator[bool]:
        nonlocal begun, ended, most
        begun += 1
        most = max(most, begun - ended)
        for _ in range(instants):
            time.sleep(0.001)  # so that none gets to its end in one stretch
            yield True
        ended += 1

    runs = map(run, [20, 60, 40, 0, 80, 20])
    sharing = Sharing.ALONE if alone else Sharing.SIDE_BY_SIDE
    for _ in by_turns(runs, torch.device("cpu"), 3, lambda: sharing):
        pass
    assert (begun, ended, most) == (6, 6, together)


def test_one_that_has_ended_is_gone_before_the_next_begins() -> None:
    """Also if its parts know each other: of such there is a GPU full after a few dozen."""
    alive: list[int] = []
    ended: list[weakref.ref[Any]] = []

    class Simulator:
        def __init__(self) -> None:
            self.me = self
            ended.append(weakref.ref(self))

    def run(_: int) -> Iterator[bool]:
        alive.append(sum(known() is not None for known in ended))
        simulator = Simulator()
        yield simulator.me is simulator

    for _ in by_turns(map(run, range(4)), torch.device("cpu"), 1):
        pass
    assert alive == [0, 0, 0, 0]


def test_what_a_lost_process_had_finished_is_kept(tmp_path: Path) -> None:
    task = to_tree(parse(TREE)), str(tmp_path / "run")
    [(before, _)] = run_tasks([task], Machine("cpu"))
    touched = (tmp_path / "run" / "metrics.jsonl").stat().st_mtime_ns
    assert run_tasks([task], Machine("cpu")) == [(None, worker.ELSEWHERE)]
    assert read_run(tmp_path / "run").summary == before
    assert (tmp_path / "run" / "metrics.jsonl").stat().st_mtime_ns == touched
