"""Gauntlet's score on the ring: by hand, and against a twin in plain Python over many rounds."""

import math
from statistics import fmean
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from basil.learning.pool import Batch
from basil.learning.promises import Losses
from basil.protocol.memory import Entry
from basil.protocol.rules import RULES, Candidates, Choice
from basil.testing import answered

Table = list[list[float]]


def choose(losses: Table, own: list[float], state: dict[str, Any], memory: float = 0.5) -> Choice:
    """Sender i's losses stand in row i; the nearest predecessor's is the first."""
    entries = [Entry(i, 9, torch.full((2,), float(i))) for i in range(len(losses))]
    promises = [Losses(torch.tensor(row)) for row in losses]
    batch = Batch(np.arange(len(own)))
    candidates = Candidates(entries, promises, torch.full((2,), -1.0), batch, state)
    return answered(RULES["gauntlet"](candidates, memory=memory), own)


def test_by_hand() -> None:
    """Own loss 4.  Senders 0 and 1 better it by ¼ and ½, 2 makes it worse: 1 is chosen.

    A round later 0 is best on this batch, but 1 was better before: (½ · ½ + ¼) / 1.5 = ⅓ against
    (½ · ¼ + ⅜) / 1.5 = ⅓: a tie, for the nearest.  With a little less on this batch, 1 wins.
    """
    one = choose([[3.0, 3.0], [2.0, 2.0], [5.0, 5.0]], [4.0, 4.0], {})
    assert one.selected.index == 1
    tie = choose([[2.5, 2.5], [3.0, 3.0], [4.0, 4.0]], [4.0, 4.0], one.state)
    assert tie.selected.index == 0
    after = choose([[2.6, 2.6], [3.0, 3.0], [4.0, 4.0]], [4.0, 4.0], one.state)
    assert after.selected.index == 1


def test_who_betters_nothing_is_not_chosen_whatever_it_did_before() -> None:
    one = choose([[1.0, 1.0], [3.9, 3.9]], [4.0, 4.0], {})
    assert one.selected.index == 0
    assert choose([[4.1, 4.1], [3.9, 3.9]], [4.0, 4.0], one.state).selected.index == 1
    assert choose([[4.1, 4.1], [4.0, 4.0]], [4.0, 4.0], one.state).selected.index == 2  # oneself


def test_garbage_costs_a_rating_and_never_is_chosen() -> None:
    bad = choose([[math.inf, math.inf], [3.9, 3.9]], [4.0, 4.0], {})
    assert bad.selected.index == 1
    assert choose([[3.0, 3.0], [3.9, 3.9]], [4.0, 4.0], bad.state).selected.index == 1
    lost = choose([[3.0, 3.0], [2.0, math.inf]], [math.inf, math.inf], {})  # one's own is garbage
    assert lost.selected.index == 0


def test_who_is_not_heard_in_a_round_keeps_its_record() -> None:
    """Sender 0 betters the loss by ¼ and then by ½; sender 1 by ½, and is silent then."""
    one = choose([[3.0, 3.0], [2.0, 2.0]], [4.0, 4.0], {})
    alone = choose([[2.0, 2.0]], [4.0, 4.0], one.state)
    records = {sender: record.tolist() for sender, record in alone.state["records"].items()}
    assert records == {"0": [0.5 * 0.25 + 0.5, 1.5], "1": [0.5, 1.0]}


@settings(max_examples=30, deadline=None)
@given(
    rounds=st.lists(
        st.lists(st.lists(st.integers(1, 40), min_size=2, max_size=2), min_size=4, max_size=4),
        min_size=1,
        max_size=5,
    )
)
def test_a_literal_twin(rounds: list[list[list[int]]]) -> None:
    state: dict[str, Any] = {}
    history: list[list[float]] = [[], [], []]
    for table in rounds:
        *others, own = [[x / 4 for x in row] for row in table]
        choice = choose(others, own, state)
        state = choice.state
        before = fmean(own)
        for past, row in zip(history, others, strict=True):
            past.insert(0, max(-1.0, (before - fmean(row)) / before))
        ratings = [
            sum(0.5**a * s for a, s in enumerate(past)) / sum(0.5**a for a in range(len(past)))
            for past in history
        ]
        able = [j for j in range(3) if history[j][0] > 0]
        best = max((ratings[j] for j in able), default=0.0)
        expected = next((j for j in able if ratings[j] > best - 1e-12), 3)
        found = choice.selected.index
        assert found == expected or abs(ratings[found] - best) < 1e-12
