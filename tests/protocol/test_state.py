"""What a checkpoint holds is what the state was at that moment, and comes back as it was."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from basil.errors import UserError
from basil.learning.promises import Losses
from basil.protocol.inbox import State
from basil.protocol.memory import Entry, Memory
from basil.protocol.requests import Arrival
from basil.protocol.state import kept, restored
from basil.protocol.turn_deadline import TurnDeadline
from basil.record.checkpoint import load, save


def filled() -> State:
    x = torch.arange(3.0)
    stored = Memory(2)
    stored.insert(Entry(4, 9, x, Losses(torch.ones(2)), 3))
    stored.insert(Entry(1, 8, x + 1))
    return State(
        stored,
        TurnDeadline(1.0, 7, 2.5),
        x,
        x + 2,
        now=3.0,
        turned_at=2.0,
        newest={4: 9, 1: 8},
        early={2: Arrival(2, 5, x, 2.25)},
        between={(6, 3): Entry(3, 1, x)},
        silent={("multicast", 3), ("aggregation", 1)},
        rule={"records": {"4": torch.ones(2)}, "alone": None},
    )


def plain(value: Any) -> str:
    return json.dumps(value, default=lambda tensor: tensor.tolist())


def test_a_state_comes_back_from_the_disk(tmp_path: Path) -> None:
    state = filled()
    packed = kept(state)()
    save(tmp_path / "state", packed)
    back = restored(State, load(tmp_path / "state"))
    assert plain(kept(back)()) == plain(packed)
    assert [entry.sender for entry in back.stored.entries] == [4, 1]  # the queue's order
    assert (back.newest, back.silent) == (state.newest, state.silent)
    assert back.between[6, 3].step == 1
    fresh = State(Memory(1), TurnDeadline(1, 0, 0), torch.ones(1), torch.ones(1), 0, 0)
    empty = restored(State, kept(fresh)())
    assert (empty.newest, empty.between, empty.silent) == ({}, {}, set())


def test_what_happens_later_is_not_in_it() -> None:
    state = filled()
    before = plain(kept(state)())
    packed = kept(state)
    state.stored.insert(Entry(7, 10, state.model))
    state.watch.hear(20, 9.0)
    state.newest[7] = 10
    state.early.clear()
    state.silent.clear()
    state.between.clear()
    state.round += 1
    assert plain(packed()) == before


def test_a_checkpoint_of_another_version_is_said_to_be_one() -> None:
    with pytest.raises(UserError, match="another version"):
        restored(State, {"round": 3, "heard": [1, 2.0]})
