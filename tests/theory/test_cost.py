"""Costs and times against the paper's numbers and recursions."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basil.errors import UserError
from basil.theory import (
    TABLE_III,
    TABLE_III_UBAR_SCORED,
    Scoring,
    Timing,
    acds_bits,
    acds_time,
    basil_plus_stages,
    basil_plus_time,
    basil_plus_time_printed,
    basil_time,
    basil_time_bound,
    basil_turns,
    round_cost,
    ubar_time,
)

CIFAR = 117_706  # parameters of the paper's CIFAR-10 network
ONE_SECOND = 31_250  # parameters: one megabit
UNIT = Timing(forward=1 / 6, step=1, megabits_per_second=1)  # with S = 6, every T is 1 s

SCORINGS: list[Scoring] = ["turn", "arrival"]
seconds = st.floats(0, 10)
timings = st.builds(Timing, seconds, seconds, st.floats(0.1, 1000))


@st.composite
def rings(draw: st.DrawFn) -> dict[str, Any]:
    nodes = draw(st.integers(2, 30))
    return {
        "nodes": nodes,
        "connectivity": draw(st.integers(1, nodes - 1)),
        "rounds": draw(st.integers(1, 4)),
    }


# Table III and the link.


def test_a_link_sends_32_bits_a_parameter() -> None:
    assert UNIT.link(ONE_SECOND) == 1
    assert TABLE_III.link(CIFAR) == pytest.approx(0.03767, rel=1e-3)
    assert replace(TABLE_III, megabits_per_second=10).link(CIFAR) == pytest.approx(0.3767, rel=1e-3)


def test_table_3_adds_up() -> None:
    assert 10 * TABLE_III.forward + TABLE_III.step == pytest.approx(0.025)
    computation = ubar_time(TABLE_III, CIFAR, neighbours=0, scored=TABLE_III_UBAR_SCORED)
    assert computation == pytest.approx(0.047)


def test_ubar_receives_one_model_after_another() -> None:
    took = ubar_time(TABLE_III, CIFAR, neighbours=10, scored=TABLE_III_UBAR_SCORED, rounds=500)
    assert took == pytest.approx(500 * (0.047 + 10 * TABLE_III.link(CIFAR)))


# Prop. 1 and App. C.


def test_a_round_costs_s_models_each_way() -> None:
    cost = round_cost(CIFAR, nodes=100, connectivity=10)
    assert cost.messages_sent == cost.messages_received == 10
    assert cost.bytes_sent == cost.bytes_received == cost.bytes_stored == 10 * 4 * CIFAR
    assert cost.models_stored == cost.evaluations == 10


def test_dropouts_cost_messages_but_neither_storage_nor_evaluations() -> None:
    cost = round_cost(CIFAR, nodes=100, connectivity=34, dropouts=5)
    assert (cost.messages_sent, cost.models_stored, cost.evaluations) == (39, 34, 34)


# Prop. 3.

EXAMPLE: dict[str, Any] = {
    "nodes": 100,
    "groups": 4,
    "points": 500,
    "share": 0.05,
    "batches": 5,
    "bits_per_point": 24_500,
}


def test_the_example_of_proposition_3() -> None:
    assert acds_bits(**EXAMPLE) == pytest.approx(76.7e6, rel=1e-3)
    took = acds_time(**EXAMPLE, megabits_per_second=100)
    assert took == pytest.approx(4.62, rel=1e-3)


def test_larger_groups_cost_more() -> None:
    costs = [acds_bits(**(EXAMPLE | {"groups": g})) for g in (20, 10, 4, 1)]
    assert costs == sorted(costs)


@given(st.integers(2, 12), st.integers(1, 6), st.integers(1, 8))
def test_acds_time_is_the_sum_of_its_rounds(size: int, groups: int, batches: int) -> None:
    first = sum(range(1, size + 1))
    middle = (batches - 1) * size**2
    dummy = size * (size - 2)
    globally = (groups - 1) * size * batches
    took = acds_time(
        nodes=size * groups,
        groups=groups,
        points=batches,  # one point a batch, one megabit a point: a batch takes a second
        share=1,
        batches=batches,
        bits_per_point=1e6,
        megabits_per_second=1,
    )
    assert took == pytest.approx(first + middle + dummy + globally)


# Prop. 4: Basil.


@pytest.mark.parametrize("scoring", SCORINGS)
@given(timings, rings())
def test_telescoping_the_recursion_gives_the_total(
    scoring: Scoring, timing: Timing, ring: dict[str, Any]
) -> None:
    ends = list(basil_turns(timing, CIFAR, **ring, scoring=scoring))
    assert len(ends) == ring["nodes"] * ring["rounds"]
    assert ends[0] == timing.step
    awaited = ring["connectivity"] if scoring == "turn" else 1
    closing = timing.link(CIFAR) + awaited * timing.forward  # (47)
    total = basil_time(timing, CIFAR, **ring, scoring=scoring)
    assert total == pytest.approx(ends[-1] + closing)


@pytest.mark.parametrize("scoring", SCORINGS)
@given(timings, rings())
def test_the_recursion_stays_below_the_bound(
    scoring: Scoring, timing: Timing, ring: dict[str, Any]
) -> None:
    bound = basil_time_bound(timing, CIFAR, **ring, scoring=scoring)
    assert basil_time(timing, CIFAR, **ring, scoring=scoring) <= bound


@given(timings, rings())
def test_scoring_on_arrival_is_never_slower(timing: Timing, ring: dict[str, Any]) -> None:
    at_turn = list(basil_turns(timing, CIFAR, **ring))
    on_arrival = list(basil_turns(timing, CIFAR, **ring, scoring="arrival"))
    assert all(early <= late for early, late in zip(on_arrival, at_turn, strict=True))


def test_on_arrival_a_turn_waits_for_one_evaluation() -> None:
    total = basil_time(UNIT, ONE_SECOND, nodes=25, connectivity=6, rounds=2, scoring="arrival")
    assert total == pytest.approx(2 * 25 * (1 + 1 / 6 + 1))


def test_the_first_turns_of_a_ring() -> None:
    timing = Timing(forward=1, step=10, megabits_per_second=0.01)  # a link takes 100 s
    ends = basil_turns(timing, ONE_SECOND, nodes=5, connectivity=2, rounds=2)
    waits = [10] + [111] + 8 * [112]
    assert list(ends) == pytest.approx([sum(waits[: i + 1]) for i in range(10)])


# Prop. 4: Basil+.


def test_the_ratio_of_sixteen_groups_to_one() -> None:
    for time, ratio in ((basil_plus_time_printed, 2.28), (basil_plus_time, 2.45)):
        sixteen = time(UNIT, ONE_SECOND, nodes=400, groups=16, connectivity=6)
        one = time(UNIT, ONE_SECOND, nodes=25, groups=1, connectivity=6)
        assert sixteen / one == pytest.approx(ratio, abs=5e-3)


def test_the_stages_of_basil_plus() -> None:
    stages = basil_plus_stages(
        UNIT, ONE_SECOND, nodes=400, groups=16, connectivity=6, ring_rounds=2
    )
    assert stages == pytest.approx((2 * 25 * 3, 16 * (1 + 6), 1 + 15))


@given(timings, st.integers(2, 20), st.integers(1, 16), st.integers(1, 4), st.data())
def test_print_forgets_one_message_a_group(
    timing: Timing, size: int, groups: int, ring_rounds: int, data: st.DataObject
) -> None:
    setting: dict[str, Any] = {
        "nodes": size * groups,
        "groups": groups,
        "connectivity": data.draw(st.integers(1, size - 1)),
        "ring_rounds": ring_rounds,
    }
    forgotten = groups * timing.link(CIFAR)
    printed = basil_plus_time_printed(timing, CIFAR, **setting)
    assert basil_plus_time(timing, CIFAR, **setting) == pytest.approx(printed + forgotten)


# Refusals.


@pytest.mark.parametrize("field", ["forward", "step", "distance", "aggregate"])
@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan])
def test_impossible_times_are_refused(field: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{field} = .* 0 or more"):
        replace(TABLE_III, **{field: value})


@pytest.mark.parametrize("bandwidth", [0, -1, math.nan])
def test_a_link_needs_bandwidth(bandwidth: float) -> None:
    with pytest.raises(UserError, match="above 0"):
        replace(TABLE_III, megabits_per_second=bandwidth)
    with pytest.raises(UserError, match="above 0"):
        acds_time(**EXAMPLE, megabits_per_second=bandwidth)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"groups": 0}, "1 to 100 groups"),
        ({"groups": 101}, "1 to 100 groups"),
        ({"groups": 3}, "divisor of 100"),
        ({"groups": 100}, "at least 2 in each"),
        ({"share": 0}, "more than 0"),
        ({"share": 1.1}, "at most 1"),
        ({"batches": 0}, "batches = 0"),
        ({"points": 0}, "points = 0"),
    ],
)
def test_impossible_sharing_is_refused(change: dict[str, float], says: str) -> None:
    with pytest.raises(UserError, match=says):
        acds_bits(**(EXAMPLE | change))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"nodes": 1}, "at least 2 nodes"),
        ({"connectivity": 10}, "0 to 9 predecessors"),
        ({"rounds": 0}, "rounds = 0"),
        ({"scoring": "never"}, '"turn" or "arrival"'),
    ],
)
def test_impossible_rings_are_refused(change: dict[str, Any], says: str) -> None:
    ring: dict[str, Any] = {"nodes": 10, "connectivity": 3}
    for time in (basil_time, basil_time_bound, basil_turns):
        with pytest.raises(UserError, match=says):
            time(UNIT, CIFAR, **(ring | change))


def test_a_model_has_parameters() -> None:
    with pytest.raises(UserError, match="parameters = 0"):
        UNIT.link(0)


def test_a_ring_has_room_for_the_dropouts() -> None:
    with pytest.raises(UserError, match="has only 9"):
        round_cost(CIFAR, nodes=10, connectivity=4, dropouts=6)


def test_basil_plus_listens_within_its_groups() -> None:
    with pytest.raises(UserError, match="ring of 25 has 0 to 24"):
        basil_plus_time(UNIT, CIFAR, nodes=400, groups=16, connectivity=25)
