"""What must hold for rings in parallel, whatever their number, sizes, lies and absences."""

from collections import Counter
from inspect import getgeneratorlocals
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from basil.engine.process import Absence
from basil.experiment import Simulation, set_up
from basil.protocol.basil_plus import basil_plus, r_plain_plus
from basil.protocol.numbering import AGGREGATION, MULTICAST, RING, STAGES, Numbering
from basil.protocol.requests import Absent, Arrival, Receive
from basil.protocol.sharing.basket import Basket
from basil.recipe import parse
from basil.topology import Grouping, Ring

from group_helpers import Story, constant, nothing, simulate_groups
from ring_helpers import Quadratic, files_of_run, plain_node

HALVES = st.integers(-16, 16).map(lambda i: i / 2)


@st.composite
def settings_of_rings(draw: st.DrawFn) -> dict[str, Any]:
    groups = draw(st.integers(1, 5))
    nodes = draw(st.integers(2 * groups, 6 * groups))
    return {
        "numbers": tuple(draw(st.lists(HALVES, min_size=nodes, max_size=nodes))),
        "groups": groups,
        "connectivity": draw(st.integers(1, nodes // groups - 1)),
        "laps": draw(st.integers(1, 2)),
        "fanout": draw(st.sampled_from([0, 2, 3])),
    }


def literal(
    numbers: tuple[float, ...], groups: int, connectivity: int, laps: int, rounds: int, rate: float
) -> list[dict[int, float]]:
    """Algorithm 3 line by line in float32, without engine or requests: who holds what."""
    N, S = len(numbers), connectivity
    rings = np.array_split(np.arange(N), groups)  # the larger ones first, as `divide` has it
    a = np.array(numbers, np.float32)
    x = np.zeros(N, np.float32)
    held = []

    def lowest(candidates: list[np.float32], i: int) -> np.float32:
        return min(candidates, key=lambda z: float(np.float32(0.5) * (z - a[i]) ** 2))

    for _ in range(rounds):
        for ring in rings:  # Stage 2: Basil, with x of each node for its first model
            stored = {i: [x[i]] for i in ring}
            for _ in range(laps):
                for p, i in enumerate(ring):
                    start = lowest(stored[i][::-1], i)
                    x[i] = start - np.float32(rate) * (start - a[i])
                    for s in range(1, S + 1):
                        j = ring[(p + s) % len(ring)]
                        stored[j] = [*stored[j], x[i]][-S:]
        z = x.copy()  # Stage 3
        for g in range(1, groups):
            for i in rings[g][-S:]:
                chosen = lowest([z[j] for j in rings[g - 1][-S:][::-1]], i)
                z[i] = (x[i] + np.float32(g) * chosen) / np.float32(g + 1)
        if groups > 1:  # Stage 4
            last = [z[j] for j in rings[-1][-S:][::-1]]
            filtered = [lowest(last, i) for i in rings[0][-S:][::-1]]
            for ring in rings:
                for i in ring[:S]:
                    x[i] = lowest(filtered, i)
        held.append(dict(enumerate(x.tolist())))
    return held


@settings(max_examples=60, deadline=None)
@given(case=settings_of_rings())
def test_it_follows_algorithm_3(case: dict[str, Any]) -> None:
    """Against a literal twin.  (One ring goes on as Basil does; only a later round would show.)"""
    rounds = 1 if case["groups"] == 1 else 3
    problem = Quadratic(case["numbers"], x0=0.0)
    story = simulate_groups(
        problem, case["groups"], case["connectivity"], rounds, 0.5, laps=case["laps"]
    )
    expected = literal(
        case["numbers"], case["groups"], case["connectivity"], case["laps"], rounds, 0.5
    )
    for k in range(1, rounds + 1):
        assert story.held(k) == pytest.approx(expected[k - 1], abs=1e-4)


def tree(scheme: str, rounds: int, **more: Any) -> dict[str, Any]:
    sections: dict[str, Any] = {
        "seed": 3,
        "ring": {"nodes": 12, "byzantine": 3, "connectivity": 2},
        "scheme": {"name": scheme, "rounds": rounds},
        "learning": {"batch": 16, "rate": 0.1, "schedule": "constant"},
        "attack": {"name": "gaussian"},
        "record": {"every": 2, "checkpoint": 3600},
    }
    for section, values in more.items():
        sections.setdefault(section, {}).update(values)
    return sections


@pytest.mark.parametrize("attack", ["none", "gaussian", "inverse", "hidden", "silent"])
@pytest.mark.parametrize("schemes", [("basil", "basil+"), ("r-plain", "r-plain+")])
def test_one_group_is_basil_bit_for_bit(
    tmp_path: Path, attack: str, schemes: tuple[str, str]
) -> None:
    """Also with a node that leaves and returns: models, choices, messages and virtual time."""
    found = []
    for scheme in schemes:
        ring = {"events": [{"node": 2, "leaves": 2, "returns": 4}]}
        recipe = parse(tree(scheme, 5, attack={"name": attack, "start": 2}, ring=ring))
        Simulation(set_up(recipe)).run(tmp_path / scheme)
        summary, metrics, *files = files_of_run(tmp_path / scheme)
        found.append([{**summary, "scheme": ""}, metrics, *files])
    assert found[0] == found[1]


def test_one_group_with_two_laps_a_round_is_basil_with_twice_the_rounds(tmp_path: Path) -> None:
    plain = Simulation(set_up(parse(tree("basil", 6)))).run(tmp_path / "basil")
    laps = Simulation(set_up(parse(tree("basil+", 3, ring={"group_rounds": 2})))).run(
        tmp_path / "plus"
    )
    for same in ("model_sha256", "messages", "selection", "virtual_seconds", "work"):
        assert plain[same] == laps[same]
    rows = [
        (tmp_path / d / "selections.csv").read_text().split("\n")[1:-1] for d in ("basil", "plus")
    ]
    assert [row.split(",")[1:] for row in rows[0]] == [row.split(",")[1:] for row in rows[1]]
    assert [(int(row.split(",")[0]) + 1) // 2 for row in rows[0]] == [
        int(row.split(",")[0]) for row in rows[1]
    ]


@settings(max_examples=60, deadline=None)
@given(
    case=settings_of_rings(),
    byzantine=st.dictionaries(st.integers(0, 9), st.sampled_from([nothing, constant(50.0)])),
    stages=st.sets(st.sampled_from(STAGES), min_size=1),
    away=st.tuples(st.integers(0, 9), st.integers(1, 3), st.sampled_from(STAGES)),
    returns=st.booleans(),
)
@example(  # it leaves so late that it is back at the same moment
    case={"numbers": (0.0,) * 9, "groups": 2, "connectivity": 2, "laps": 1, "fanout": 0},
    byzantine={},
    stages={"ring"},
    away=(3, 1, "aggregation"),
    returns=True,
)
def test_numbers_only_ever_increase_and_everybody_finishes(
    case: dict[str, Any],
    byzantine: dict[int, Any],
    stages: set[str],
    away: tuple[int, int, str],
    returns: bool,
) -> None:
    """With Byzantine nodes, silence and absence in any stage, fewer than S in all: no honest node
    says two things under one number, nor goes back; and all that are there finish every round."""
    N, rounds = len(case["numbers"]), 4
    node, leaves, stage = away
    byzantine = dict(list(byzantine.items())[: case["connectivity"] - 1 - (node < N)])
    if case["connectivity"] == 1:
        byzantine, node = {}, N
    joined = case["groups"] > 1
    absent = Absence(node, leaves, leaves + 1 if returns else None, stage if joined else RING)
    story = simulate_groups(
        Quadratic(case["numbers"], x0=0.0),
        case["groups"],
        case["connectivity"],
        rounds,
        laps=case["laps"],
        fanout=case["fanout"],
        lies={i: lie for i, lie in byzantine.items() if i < N},
        stages=tuple(stages),
        absences=(absent,) if node < N and N > 2 else (),
        patience=1.0,
    )
    for i in range(N):
        models = [send for _, sender, send in story.sent if sender == i and send.to]
        models = [send for send in models if hasattr(send.body, "shape")]
        for before, after in pairwise(models):
            assert before.round <= after.round
            assert before.round < after.round or before.body is after.body or i in byzantine
    for k in range(1, rounds + 1):
        gone = node < N and N > 2 and leaves <= k and not (returns and k > leaves)
        assert sorted(story.held(k)) == [i for i in range(N) if not (gone and i == node)]


@settings(max_examples=40, deadline=None)
@given(case=settings_of_rings())
def test_whatever_way_it_takes_the_average_is_over_all_groups(case: dict[str, Any]) -> None:
    """R-plain+ has nothing to choose, so what is handed round is the mean of the last models."""
    problem = Quadratic(case["numbers"], x0=0.0)
    groups, fanout = case["groups"], case["fanout"]
    story = simulate_groups(problem, groups, 1, 1, fanout=fanout, scheme=r_plain_plus)
    rings = Grouping(tuple(range(len(case["numbers"]))), groups).rings
    turns = {
        c.node: c.value for c in story.choices if c.stage == RING and (not c.last or groups == 1)
    }
    if groups > 1:
        mean = sum(turns[ring.order[-1]] for ring in rings) / groups
        for ring in rings:
            assert story.held(1)[ring.order[0]] == pytest.approx(mean, abs=1e-4)


@pytest.mark.parametrize(
    ("groups", "fanout", "depth"),
    [(9, 0, 8), (9, 3, 4), (8, 2, 3), (1, 2, 0), (7, 2, 3), (100, 10, 18)],
)
def test_depth_of_rings_of_rings(groups: int, fanout: int, depth: int) -> None:
    grouping = Grouping(tuple(range(2 * groups)), groups, fanout)
    assert grouping.depth == depth
    # Every group but the first of all passes on once what comes to it, and all arrives at the last.
    targets = Counter(route.target for route in grouping.routes[:-1])
    assert all(targets[g] == len(route.hops) for g, route in enumerate(grouping.routes))
    last = grouping.routes[-1].hops
    assert not last or last[-1].own + last[-1].theirs == groups


@given(laps=st.integers(1, 5), joined=st.booleans(), k=st.integers(1, 50))
def test_the_calendar_reads_back_what_it_numbers(laps: int, joined: bool, k: int) -> None:
    numbering = Numbering(laps, joined)
    numbers = []
    for lap in range((k - 1) * laps + 1, k * laps + 1):
        number = numbering.number(lap)
        numbers.append(number)
        assert numbering.ring_round(number) == lap
        assert numbering.stage(number) == (k, RING) == (numbering.global_round(lap), RING)
    if joined:
        for number, stage in (
            (numbering.aggregation(k), AGGREGATION),
            (numbering.multicast(k), MULTICAST),
        ):
            numbers.append(number)
            assert numbering.stage(number) == (k, stage)
            assert numbering.ring_round(number) is None
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbering.number(k * laps + 1) == numbers[-1] + 1
    assert numbering.ring_round(0) is None
    assert numbering.ring_round(-k) is None


def test_what_a_byzantine_node_may_send_is_ignored() -> None:
    """Wrong stage, wrong round, no model, a stranger, twice: a node of S_2 keeps one of node 1."""
    problem = Quadratic((1.0,) * 6, x0=0.0)
    compute = problem.compute()
    rings = Grouping(tuple(range(6)), 2)
    numbering = Numbering(1, joined=True)
    place = plain_node(
        5, compute, ring=Ring(range(6)), grouping=rings, connectivity=1, reach=1, rounds=2
    )
    member = basil_plus(place)
    model = compute.initial
    assert isinstance(next(member), Receive)
    bad = [
        Arrival(1, numbering.aggregation(1), model, 0.1),  # is not in S_1
        Arrival(2, numbering.aggregation(1), Absent(3), 0.1),
        Arrival(2, numbering.aggregation(1), Basket(np.arange(3), 8), 0.1),
        Arrival(2, numbering.multicast(1), model, 0.1),  # 5 is not in U_2
        Arrival(2, numbering.number(1), model, 0.1),  # of another ring
        Arrival(2, numbering.aggregation(3), model, 0.1),  # far ahead
        Arrival(2, 0, model, 0.1),
        Arrival(2, -7, model, 0.1),
        Arrival(77, numbering.aggregation(1), model, 0.1),  # nobody
    ]
    for arrival in bad:
        assert isinstance(member.send(arrival), Receive)
    first, second = model + 1, model + 2
    assert isinstance(member.send(Arrival(2, numbering.aggregation(1), first, 0.1)), Receive)
    assert isinstance(member.send(Arrival(2, numbering.aggregation(1), second, 0.1)), Receive)
    heard = getgeneratorlocals(member)["mine"].between
    assert [(at, entry.model) for at, entry in heard.items()] == [
        ((numbering.aggregation(1), 2), first)
    ]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("node", [0, 2, 3, 5])  # first and last of both rings
def test_a_node_leaves_in_any_stage_and_comes_back(stage: str, node: int) -> None:
    story = simulate_groups(
        Quadratic((3.0, 5.0, 4.0, 6.0, 2.0, 7.0), x0=0.0),
        groups=2,
        connectivity=1,
        rounds=5,
        dropouts=1,
        absences=(Absence(node, 2, 4, stage),),
        patience=1.0,
    )
    rounds = {i: [k for k in range(1, 6) if i in story.held(k)] for i in range(6)}
    assert rounds == {i: [1, 4, 5] if i == node else [1, 2, 3, 4, 5] for i in range(6)}
    turned = [c.round for c in story.choices if c.node == node and c.stage == RING and not c.last]
    assert turned == ([1, 4, 5] if stage == RING else [1, 2, 4, 5])
    if node in (0, 3):  # it is back in time to start round 4 from what is handed round in round 3
        assert story.in_stage(3, MULTICAST)[node] in (1, 2)


def silent_story(lies: dict[int, Any]) -> Story:
    return simulate_groups(
        Quadratic(tuple(float(i) for i in range(9)), x0=0.0), 3, 2, 6, lies=lies, patience=1.0
    )


def test_silence_between_groups_costs_one_deadline_not_one_in_every_round() -> None:
    """Node 5 passes nothing on: the first round is late, the later ones are not."""
    usual = silent_story({})
    late = simulate_groups(
        Quadratic(tuple(float(i) for i in range(9)), x0=0.0),
        3,
        2,
        6,
        lies={5: nothing},
        stages=(AGGREGATION,),
        patience=1.0,
    )

    def ends(story: Story) -> list[float]:
        return [max(c.time for c in story.choices if c.round == k) for k in range(1, 7)]

    first, *others = (b - a for a, b in pairwise([0.0, *ends(late)]))
    ordinary = [b - a for a, b in pairwise([0.0, *ends(usual)])]
    assert first > 6.0  # (τ + 1) n patiences
    assert max(others) <= max(ordinary) + 1e-9
