"""The simulator's clock against the recursion of Appendix E, two programs that share no code."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basil.engine.durations import Durations
from basil.recipe import Recipe
from basil.theory import TABLE_III, basil_turns
from basil.theory import Timing as Plan

from ring_helpers import Quadratic, simulate_quadratic


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 9),
    data=st.data(),
    rounds=st.integers(1, 3),
    costs=st.tuples(*[st.integers(1, 50)] * 3),
    scoring=st.sampled_from(["turn", "arrival"]),
)
def test_turns_end_when_the_paper_says(
    n: int, data: st.DataObject, rounds: int, costs: tuple[int, int, int], scoring: str
) -> None:
    """Turn by turn, but for x⁰: App. B lets the first S nodes evaluate it, App. E does not."""
    s = data.draw(st.integers(1, n - 1))
    forward, step, link = map(float, costs)
    # A model of one parameter: 32 bits at 32/link bits a second.
    plan = Plan(forward, step, megabits_per_second=32 / link / 1e6)
    expected = basil_turns(
        plan,
        1,
        nodes=n,
        connectivity=s,
        rounds=rounds,
        scoring=scoring,  # type: ignore[arg-type]
    )
    turns = simulate_quadratic(
        Quadratic(tuple(float(i) for i in range(n)), x0=0.5),
        connectivity=s,
        rounds=rounds,
        rate=0.5,
        times=(forward, step, link),
        on_arrival=scoring == "arrival",
        patience=1e6,
    )
    for number, (turn, end) in enumerate(zip(turns, expected, strict=True), start=1):
        assert turn.time == pytest.approx(end + min(number, s) * forward)


def test_both_clocks_send_a_model_in_the_same_time() -> None:
    clock = Recipe().time
    assert (clock.forward, clock.step) == (TABLE_III.forward, TABLE_III.step)
    engine = Durations(0.0, 0.0, clock.megabits)
    assert engine.link(4 * 117_706) == pytest.approx(TABLE_III.link(117_706))
    assert engine.link(4 * 117_706) == pytest.approx(3.766592 / 100)  # 3.77 Mbit at 100 Mb/s
