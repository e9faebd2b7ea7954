"""A plan is its propositions, put together."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basil.errors import UserError
from basil.theory import (
    PAPER_TIMES,
    TABLE_III,
    PartTimes,
    Setting,
    basil_plus_time,
    basil_time_bound,
    failure_exact,
    failure_simulated,
    group_failure_exact,
    make_plan,
    smallest_connectivity,
)

PAPER = Setting(nodes=100, byzantine=33)
CIFAR = 117_706


@st.composite
def asked(draw: st.DrawFn) -> Setting:
    nodes = draw(st.integers(3, 40))
    setting = Setting(nodes, draw(st.integers(0, nodes - 2)), rounds=draw(st.integers(1, 5)))
    if draw(st.booleans()):
        return replace(setting, connectivity=draw(st.integers(1, nodes - 1)))
    return replace(setting, failure=draw(st.floats(1e-9, 0.9)))


@settings(deadline=None)
@given(asked())
def test_what_is_exact_lies_below_the_bound(setting: Setting) -> None:
    plan = make_plan(setting)
    assert plan.ring.risk.exact <= plan.ring.risk.bound * (1 + 1e-15)
    if setting.failure is not None:
        assert plan.ring.risk.exact <= setting.failure
        assert plan.ring.by_bound is not None
        assert plan.ring.connectivity <= plan.ring.by_bound


@settings(max_examples=40, deadline=None)
@given(asked())
def test_every_number_of_groups_keeps_what_is_wanted(setting: Setting) -> None:
    plan = make_plan(setting)
    for choice in plan.choices:
        assert choice.groups * choice.size == setting.nodes
        assert choice.connectivity < choice.size
        where = setting.nodes, setting.byzantine, choice.groups, choice.connectivity
        assert choice.exact == group_failure_exact(*where)
        if setting.failure is not None:
            assert choice.exact <= setting.failure
        grouped = make_plan(replace(setting, groups=choice.groups)).grouped
        assert grouped is not None
        assert grouped.connectivity == choice.connectivity
        if choice.groups > 1:
            assert (grouped.turn, grouped.arrival) == (choice.turn, choice.arrival)
    assert plan.best is None or plan.best.turn == min(choice.turn for choice in plan.choices)


def test_the_least_time_is_found_among_all_divisors() -> None:
    plan = make_plan(Setting(nodes=400, byzantine=60, failure=1e-6, rounds=1))
    times = {1: basil_time_bound(TABLE_III, CIFAR, nodes=400, connectivity=11)}
    for groups in (2, 4, 5, 8, 10, 16, 20, 25):
        times[groups] = basil_plus_time(TABLE_III, CIFAR, nodes=400, groups=groups, connectivity=11)
    assert {choice.connectivity for choice in plan.choices} == {11}
    found = {choice.groups: choice.turn for choice in plan.choices}
    assert {g: found[g] for g in times} == pytest.approx(times)
    assert plan.best is not None
    assert plan.best.groups == min(found, key=found.__getitem__) == 8


def test_one_ring_has_nobody_to_aggregate_with() -> None:
    plan = make_plan(PAPER)
    assert plan.choices[0].groups == 1
    assert plan.choices[0].turn == plan.turn.bound


def test_a_million_nodes() -> None:
    plan = make_plan(Setting(1_000_000, 330_000, failure=1e-9, groups=100))
    assert (plan.ring.connectivity, plan.ring.by_bound) == (31, 32)
    assert plan.grouped is not None
    assert plan.grouped.risk.exact <= 1e-9
    assert len(plan.choices) > 30


def test_the_worst_case_takes_one_more_than_there_are_byzantine_nodes() -> None:
    plan = make_plan(replace(PAPER, worst_case=True, dropouts=5))
    cost = plan.ring.round
    assert plan.ring.connectivity == cost.models_stored == 34  # App. C: store b + 1,
    assert cost.messages_sent == 39  # multicast to b + d + 1
    assert plan.ring.risk.exact == plan.ring.risk.bound == 0
    assert [choice.groups for choice in plan.choices] == [1, 2]  # 34 predecessors need 35 nodes


def test_while_some_are_away_the_ring_is_shorter() -> None:
    plan = make_plan(replace(PAPER, connectivity=10, dropouts=4))
    assert plan.ring.risk.away == failure_exact(96, 33, 10) > failure_exact(100, 33, 10)
    assert make_plan(PAPER).ring.risk.away is None


def test_the_simulation_agrees_with_what_is_exact() -> None:
    setting = replace(PAPER, connectivity=6, groups=5, trials=3000, seed=7)
    plan = make_plan(setting)
    assert plan.grouped is not None
    for risk in (plan.ring.risk, plan.grouped.risk):
        assert risk.simulated is not None
        assert risk.simulated.low <= risk.exact <= risk.simulated.high
    assert plan.ring.risk.simulated == failure_simulated(100, 33, 6, 3000, 7)


def test_ubar_scores_as_in_table_3_or_as_the_protocol_does() -> None:
    assert make_plan(replace(PAPER, connectivity=10)).ubar.computation == pytest.approx(0.047)
    measured = PartTimes(forward=1, step=10, distance=100, average=1000)
    ubar = make_plan(replace(PAPER, connectivity=10, times=measured)).ubar
    assert ubar.scored == 4  # 3 of 10 kept, and its own
    assert ubar.computation == 4 + 10 + 10 * 100 + 1000


def test_scored_on_arrival_groups_wait_less() -> None:
    one_second = {"parameters": 31_250, "megabits_per_second": 1.0, "rounds": 1}
    times = PartTimes(forward=0.25, step=1)
    plan = make_plan(Setting(40, 4, connectivity=4, groups=4, times=times, **one_second))  # type: ignore[arg-type]
    assert plan.grouped is not None
    assert plan.grouped.turn == 10 * (1 + 1 + 1) + 4 * (1 + 4) + (1 + 3)
    # Four models arrive in four seconds; when the last is in, one is left to be evaluated.
    assert plan.grouped.arrival == 10 * (0.25 + 1 + 1) + 4 * (4 + 0.25) + (0.25 + 3)
    slow = replace(times, forward=2.0)
    grouped = make_plan(Setting(40, 4, connectivity=4, groups=4, times=slow, **one_second)).grouped  # type: ignore[arg-type]
    assert grouped is not None
    assert grouped.arrival == 10 * (2 + 1 + 1) + 4 * (1 + 4 * 2) + (2 + 3)


def test_the_papers_times_are_those_of_table_3() -> None:
    timing = PAPER_TIMES.timing(100, 10)
    assert timing.distance == pytest.approx(TABLE_III.distance)
    assert replace(timing, distance=TABLE_III.distance) == TABLE_III


def test_a_wish_without_a_number_is_one_in_a_million() -> None:
    assert make_plan(PAPER).ring.connectivity == smallest_connectivity(100, 33, 1e-6)


@pytest.mark.parametrize("failure", [0.0, 1.0, -1.0, 2.0, math.nan])
@pytest.mark.parametrize("groups", [None, 4])
def test_a_probability_lies_between_0_and_1(failure: float, groups: int | None) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        make_plan(replace(PAPER, failure=failure, groups=groups))
