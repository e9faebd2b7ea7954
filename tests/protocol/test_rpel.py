"""RPEL: who pulls from whom, how many of them lie, what is made of it, and what it costs."""

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from basil.errors import UserError
from basil.experiment import Simulation, set_up
from basil.experiment.nodes import node_of
from basil.protocol.graph.rpel import FAILURE, effective, mixed_and_trimmed, rpel
from basil.protocol.requests import Send
from basil.recipe import parse

from aggregation_helpers import same


def recipe(**scheme: Any) -> Any:
    return parse(
        {
            "ring": {"nodes": 9, "byzantine": 2},
            "graph": {"name": "complete"},
            "scheme": {"name": "rpel", "rounds": 4, **scheme},
            "learning": {"model": "softmax", "batch": 16, "rate": 0.1},
            "attack": {"name": "sign-flip"},
            "record": {"every": 4},
        }
    )


def test_mixed_and_trimmed_by_hand() -> None:
    """0 and 1, 2, 9 with b̂ = 1: each the mean of its three nearest: 1, 1, 1, 4; trimmed: 1."""
    models = torch.tensor([[1.0], [2.0], [9.0]])
    assert same(mixed_and_trimmed(torch.zeros(1), models, 1), [1.0])


@pytest.mark.parametrize("seed", range(5))
def test_byzfl_agrees(byzfl: Any, seed: int) -> None:
    numbers = torch.randn(8, 5, generator=torch.Generator().manual_seed(seed))
    for f in range(3):
        expected = byzfl.TrMean(f=f)(byzfl.NNM(f=f)(numbers.clone()))
        assert same(mixed_and_trimmed(numbers[0], numbers[1:], f), expected.tolist())


@settings(max_examples=30, deadline=None)
@given(m=st.integers(1, 8), data=st.data(), draws=st.integers(1, 30))
def test_as_many_are_set_aside_as_a_union_bound_asks_for(
    m: int, data: st.DataObject, draws: int
) -> None:
    b, s = data.draw(st.integers(0, m)), data.draw(st.integers(1, m))
    pulls = Counter(sum(i < b for i in drawn) for drawn in itertools.combinations(range(m), s))
    total = sum(pulls.values())

    def bound(t: int) -> float:
        return draws * sum(n for found, n in pulls.items() if found > t) / total

    found = effective(m, b, s, draws)
    assert bound(found) <= FAILURE
    assert found == 0 or bound(found - 1) > FAILURE


def test_a_model_goes_to_those_who_pull_it_and_costs_no_more(tmp_path: Path) -> None:
    setup = set_up(recipe(pull=3))
    summary = Simulation(setup).run(tmp_path / "run")
    assert summary["messages"]["count"] == 4 * 9 * 3
    facts = json.loads((tmp_path / "run/run.json").read_text())
    assert facts["graph"]["edges"] == 36
    sent = Counter[int]()
    for node in range(9):
        first = next(rpel(node_of(setup, node), pull=3))
        assert isinstance(first, Send)
        assert node not in first.to
        sent.update(first.to)
    assert sent == dict.fromkeys(range(9), 3)  # everybody is sent just what it pulls


def test_other_rounds_have_other_partners() -> None:
    setup = set_up(recipe(pull=3))
    sends = [next(rpel(node_of(setup, 0, rejoin_round=k), pull=3)) for k in (1, 2, 3, 4)]
    assert len({send.to for send in sends if isinstance(send, Send)}) > 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"pull": -1}, r"scheme.pull = -1: it must be 1 or more, or 0"),
        ({"pull": 5, "discard": 3}, "scheme.discard = 3: of 5 models fewer than half.*at most 2"),
    ],
)
def test_wrong_options_are_said_before_the_run(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        set_up(recipe(**options))
