"""The virtual clock of Basil+ against App. E and Proposition 4: two programs that share no code.

One global round with every T drawn at random.  The stages whose time App. E states with an equals
sign take just that; the whole never takes longer than the stages' sum.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basil.learning.compute import Compute
from basil.protocol.numbering import Numbering
from basil.theory import (
    Timing,
    aggregation_depth,
    basil_plus_path,
    basil_plus_stages,
    basil_plus_time,
    basil_turns,
)
from basil.topology import Grouping

from group_helpers import Story, simulate_groups
from ring_helpers import Quadratic


@st.composite
def rings(draw: st.DrawFn) -> dict[str, Any]:
    size = draw(st.integers(2, 7))
    return {
        "groups": draw(st.integers(2, 7)),
        "size": size,
        "connectivity": draw(st.integers(1, size - 1)),
        "ring_rounds": draw(st.integers(1, 3)),
        "scoring": draw(st.sampled_from(["turn", "arrival"])),
        "costs": draw(st.tuples(*[st.integers(1, 50)] * 3)),  # forward, step, link
    }


def run(case: dict[str, Any], fanout: int = 0) -> tuple[Story, tuple[Any, ...], dict[str, Any]]:
    """One global round, and what the formulas need for the same."""
    forward, step, link = map(float, case["costs"])
    nodes = case["groups"] * case["size"]
    story = simulate_groups(
        Quadratic(tuple(float(i % 5) for i in range(nodes)), x0=0.5),
        case["groups"],
        case["connectivity"],
        rounds=1,
        laps=case["ring_rounds"],
        fanout=fanout,
        times=(forward, step, link),
        on_arrival=case["scoring"] == "arrival",
        patience=1e6,
    )
    timing = Timing(forward, step, megabits_per_second=32 / link / 1e6)
    words = {key: case[key] for key in ("groups", "connectivity", "ring_rounds", "scoring")}
    return story, (timing, 1), {"nodes": nodes, **words}


@settings(max_examples=120, deadline=None)
@given(case=rings())
def test_one_global_round(case: dict[str, Any]) -> None:
    story, where, words = run(case)
    G, S, n = case["groups"], case["connectivity"], case["size"]
    grouping = Grouping(tuple(range(G * n)), G)
    numbering = Numbering(case["ring_rounds"], joined=True)

    def sent(group: int, number: int) -> list[float]:
        """When the last nodes of a group send."""
        return [t for t, i, s in story.sent if s.round == number and grouping.group_of[i] == group]

    # Stage 2, in the first ring: (42)–(46), with x⁰ evaluated by the first S nodes (App. B).
    forward = case["costs"][0]
    ring = {"nodes": n, "connectivity": S, "rounds": case["ring_rounds"]}
    ends = basil_turns(*where, **ring, scoring=case["scoring"])
    turns = [c.time for c in story.choices if c.stage == "ring" and not c.last and c.node < n]
    expected = [end + min(turn, S) * forward for turn, end in enumerate(ends, start=1)]
    assert turns == pytest.approx(expected)
    # Stage 3: S T_comm + T_perf from S_g to S_{g+1}, and to S_1.  (The second group's nodes may be
    # done at different moments: models of the first come in over the links that their ring needs.)
    hop = basil_plus_stages(*where, **words).aggregation / G
    now = sent(1, numbering.aggregation(1))
    for g, number in [
        *((g, numbering.aggregation(1)) for g in range(2, G)),
        (0, numbering.multicast(1)),
    ]:
        before, now = now, sent(g, number)
        assert now == pytest.approx([now[0]] * S)
        if max(before) == min(before):
            assert now[0] == pytest.approx(before[0] + hop)
        assert now[0] <= max(before) + hop + 1e-9
    # Stage 4: S models to each of U_g, all at the same moment.  Then all is over.
    assert story.time == pytest.approx(now[0] + hop)
    # All stages: never above their sum; nor above Prop. 4, where it counts enough links.
    assert story.time <= basil_plus_path(*where, **words) + 1e-9
    if S <= G - 1:
        assert story.time <= basil_plus_time(*where, **{**words, "scoring": "turn"}) + 1e-9


@settings(max_examples=60, deadline=None)
@given(case=rings(), fanout=st.integers(2, 4))
def test_rings_of_rings(case: dict[str, Any], fanout: int) -> None:
    """As deep as the formula says, and never later than it says."""
    story, where, words = run(case, fanout)
    grouping = Grouping(tuple(range(words["nodes"])), case["groups"], fanout)
    assert grouping.depth == aggregation_depth(case["groups"], fanout)
    assert story.time <= basil_plus_path(*where, **words, fanout=fanout) + 1e-9


def test_what_the_rings_ask_for_at_one_instant_is_done_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four rings of five: four trainings at a time, and one load of a model for its receivers.

    (With S > 1 the second ring falls behind in its last turns, when models of the first group come
    in over its nodes' links.)
    """
    trained: list[int] = []
    scored: list[int] = []
    train, score = Compute.train_together, Compute.score

    def count_trained(self: Compute, jobs: Any) -> Any:
        trained.append(len(jobs))
        return train(self, jobs)

    def count_scored(self: Compute, model: Any, batches: Any) -> Any:
        scored.append(len(batches))
        return score(self, model, batches)

    monkeypatch.setattr(Compute, "train_together", count_trained)
    monkeypatch.setattr(Compute, "score", count_scored)
    problem = Quadratic(tuple(float(i) for i in range(20)), x0=0.5)
    simulate_groups(problem, groups=4, connectivity=1, rounds=1, times=(1.0, 2.0, 0.25))
    assert trained == [4] * 5
    # x⁰ by the first nodes; a model of each ring in each of four turns; four hops; the multicast.
    assert scored == [4, *[1] * 16, *[1] * 4, 4]
    trained.clear()
    scored.clear()
    simulate_groups(problem, groups=4, connectivity=3, rounds=1, times=(1.0, 2.0, 0.25))
    assert trained[:3] == [4, 4, 4]
    assert sum(trained) == 20
    assert scored[-3:] == [12, 12, 12]  # three models to the first three nodes of four rings


@given(groups=st.integers(1, 3000), fanout=st.integers(2, 12))
def test_the_depth_grows_as_the_logarithm(groups: int, fanout: int) -> None:
    levels, reached = 0, 1
    while reached < groups:
        levels, reached = levels + 1, reached * fanout
    assert aggregation_depth(groups, fanout) <= (fanout - 1) * levels
    assert aggregation_depth(groups) == groups - 1
    if reached == groups:
        assert aggregation_depth(groups, fanout) == (fanout - 1) * levels
