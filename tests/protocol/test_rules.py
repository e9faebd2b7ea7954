"""Rules beyond the paper's, each against a literal twin in plain Python."""

import math
import statistics
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from basil.errors import UserError
from basil.learning.pool import Batch
from basil.learning.promises import Losses, tensor_of
from basil.protocol.memory import Entry
from basil.protocol.requests import Combine, Score
from basil.protocol.rules import RULES, Candidates, Choice
from basil.protocol.rules.lineage import lineage
from basil.testing import answered

OWN = torch.full((3,), -1.0)
Table = list[list[float]]

# Quarters: sums and differences of a few of them are exact, so that a tie is a tie in both.
quarters = st.integers(-40, 40).map(lambda n: n / 4)


def tables(rows: int) -> st.SearchStrategy[Table]:
    return st.lists(st.lists(quarters, min_size=4, max_size=4), min_size=rows, max_size=rows)


def choose(
    rule: str,
    losses: Table,
    own: list[float],
    state: dict[str, Any] | None = None,
    models: list[list[float]] | None = None,
    mine: torch.Tensor = OWN,
    **options: Any,
) -> Choice:
    """`losses`: the nearest predecessor's first; its sender is 0.  `own`: those of `mine`."""
    models = models or [[float(i)] * 3 for i in range(len(losses))]
    entries = [Entry(i, 100 - i, torch.tensor(model)) for i, model in enumerate(models)]
    promises = [Losses(torch.tensor(row)) for row in losses]
    batch, layers = Batch(np.arange(4)), (slice(0, 1), slice(1, 3))
    candidates = Candidates(entries, promises, mine, batch, state or {}, layers)
    return answered(RULES[rule](candidates, **options), own)


def excess(row: list[float], reference: list[float]) -> float:
    """mean / standard error of the paired differences."""
    gaps = [a - b for a, b in zip(row, reference, strict=True)]
    mean = statistics.fmean(gaps)
    if mean == 0:
        return 0.0
    spread = statistics.stdev(gaps)
    return math.copysign(math.inf, mean) if spread == 0 else mean / (spread / math.sqrt(len(gaps)))


def freshest_literally(losses: Table, z: float) -> int:
    best = min(losses, key=statistics.fmean)
    return next(j for j, row in enumerate(losses) if excess(row, best) <= z)


@settings(deadline=None)
@given(losses=tables(4), z=st.sampled_from([0.0, 0.37, 1.13, 2.71]))
def test_the_freshest_within_noise(losses: Table, z: float) -> None:
    choice = choose("freshest", losses, [], z=z, anchor=False)
    assert choice.selected.index == freshest_literally(losses, z)


@settings(deadline=None)
@given(losses=tables(4), z=st.sampled_from([0.0, 0.37, 1.13, 2.71]))
def test_with_an_anchor_ones_own_model_is_the_oldest_candidate(losses: Table, z: float) -> None:
    *others, own = losses
    choice = choose("freshest", others, own, z=z)
    assert choice.selected.index == freshest_literally(losses, z)
    chose_own = torch.equal(tensor_of(choice.model), OWN)
    assert chose_own == (choice.selected.index == 3)


def test_a_lap_of_small_harm_is_noticed() -> None:
    """No candidate differs from the next by much; all of them are worse than what one had."""
    losses = [[1.5, 1.6, 1.4, 1.5], [1.5, 1.6, 1.5, 1.5], [1.4, 1.6, 1.4, 1.5]]
    own = [1.0, 1.1, 1.0, 1.1]
    assert choose("freshest", losses, own, anchor=False).selected.index == 0
    assert choose("freshest", losses, own).selected.index == 3


Vector = list[float]


def lineage_literally(models: list[Vector], length: float, kin: float) -> list[int | None]:
    """Turns in each; None for what goes back to no other."""
    turns: list[int | None] = [None] * len(models)
    for j in reversed(range(len(models))):
        older = range(j + 1, len(models))
        parent = min(older, key=lambda k: math.dist(models[j], models[k]), default=None)
        if parent is None or math.dist(models[j], models[parent]) > kin * length:
            continue
        worked = math.dist(models[j], models[parent]) >= length / kin
        turns[j] = (turns[parent] or 0) + worked
    return turns


def family(seed: int, count: int, turn: float = 1.0) -> list[Vector]:
    """Models of which some are a turn away from an older one, some copies, some from nowhere."""
    stream = np.random.default_rng(seed)
    models: list[Any] = [stream.normal(size=3)]
    for _ in range(count - 1):
        parent = models[stream.integers(len(models))]
        step = stream.normal(size=3)
        far = stream.choice([0.0, 0.01, 1.0, 1.0, 1.0, 1.5, 30.0])
        models.append(parent + turn * far * step / np.linalg.norm(step))
    return [model.astype(np.float32).tolist() for model in reversed(models)]


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 12), kin=st.sampled_from([1.2, 2.1]))
def test_lineage_against_a_literal_twin(seed: int, count: int, kin: float) -> None:
    models = family(seed, count)
    turns, related = lineage(torch.tensor(models, dtype=torch.float64), torch.tensor(1.07), kin)
    expected = lineage_literally(models, 1.07, kin)
    assert turns.tolist() == [n or 0 for n in expected]
    assert related.tolist() == [n is not None for n in expected]


def test_turns_by_hand() -> None:
    """Turns of length 1 along a line, 0 ← 1 ← 2 ← 3; a copy of 2; from 1 sideways; a stranger."""
    models = [[1.0, 1.0], [3.0, 0.0], [50.0, 0.0], [2.1, 0.0], [2.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    turns, related = lineage(torch.tensor(models), torch.tensor(1.0), 2.0)
    assert turns.tolist() == [2, 3, 0, 2, 2, 1, 0]
    assert related.tolist() == [True, True, False, True, True, True, False]
    # What is not finite, or too large to be squared, is nobody's kin, and nobody is its.
    models[2], models[3] = [math.nan, 0.0], [3e30, 0.0]
    turns, related = lineage(torch.tensor(models), torch.tensor(1.0), 2.0)
    assert turns.tolist() == [2, 3, 0, 0, 2, 1, 0]


def trust_literally(
    rounds: list[Table],
    models: list[list[Vector]],
    *,
    z: float,
    lineage_ratio: float,
    memory: float,
    learnt_share: float,
    excess_limit: float,
) -> list[int]:
    """Index chosen in each round.  One's own models are OWN, 2 OWN, …; the region is wide."""
    began = statistics.fmean(rounds[0][-1])
    excesses: list[list[float]] = [[] for _ in models[0]]
    made: list[int] = []
    squares = weights = 0.0
    for table, stored in zip(rounds, models, strict=True):
        turns: list[int | None] = [None] * len(stored)
        if made:
            last, now = ((r * OWN).tolist() for r in (len(made), len(made) + 1))
            start = [*models[len(made) - 1], last][made[-1]]
            squares = 0.9 * squares + math.dist(start, now) ** 2
            weights = 0.9 * weights + 1
            turns = lineage_literally(stored, math.sqrt(squares / weights), lineage_ratio)
        alone = bool(made) and made[-1] == len(stored)
        best = min(table[:-1], key=statistics.fmean)
        gained = 1 - statistics.fmean(best) / began
        near = []
        for j, row in enumerate(table[:-1]):
            excesses[j].append(excess(row, best))
            aged = [(memory**a, min(3.0, e)) for a, e in enumerate(reversed(excesses[j]))]
            average = sum(w * e for w, e in aged) / sum(w for w, _ in aged)
            tolerance = z if turns[j] is not None and average <= excess_limit else z / 2
            tolerance *= max(0.0, min(1.0, gained / learnt_share))
            if excess(row, best) <= tolerance and (alone or excess(row, table[-1]) <= z):
                near.append(j)
        made.append(max(near, key=lambda j: (turns[j] or 0, -j), default=len(table) - 1))
    return made


positive = st.integers(1, 80).map(lambda n: n / 4)
gained = st.lists(st.lists(positive, min_size=4, max_size=4), min_size=7, max_size=7)


@settings(deadline=None, max_examples=400)
@given(
    rounds=st.lists(gained, min_size=1, max_size=4),
    seed=st.integers(0, 10**6),
    learnt=st.sampled_from([0.013, 0.37, 0.93]),
    far=st.sampled_from([1.07, 3.01]),
)
def test_trust_against_a_literal_twin(
    rounds: list[Table], seed: int, learnt: float, far: float
) -> None:
    shares = {"learnt_share": learnt, "excess_limit": far}
    options = {"z": 1.31, "lineage_ratio": 2.1, "memory": 0.9, **shares}
    models = [family(seed + i, 6, turn=3.0) for i in range(len(rounds))]
    state: dict[str, Any] = {}
    made = []
    for k, (table, stored) in enumerate(zip(rounds, models, strict=True), 1):
        mine = k * OWN
        choice = choose(
            "trust", table[:-1], table[-1], state, stored, mine, region_reach=1e6, **options
        )
        made.append(choice.selected.index)
        state = choice.state
    assert made == trust_literally(rounds, models, **options)


def test_how_far_above_the_lowest_one_may_be() -> None:
    """Sender 0 is 3 standard errors above the lowest: gaps of 1, 1, 1, 0, on average ¾ ± ¼.

    And it is nearer than sender 1, whose loss is the lowest.  Its model is one turn away from that
    one, if turns are known to be about as long: the state says that the last one had a length of 1.
    """
    rows = [[2.0, 2.0, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    models = [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    mine = torch.tensor([0.0, 3.0, 4.0])
    turn = {"start": torch.tensor([0.0, 3.0, 3.0]), "sums": torch.zeros(3)}
    known = {"began": torch.tensor(2.0, dtype=torch.float64), "trust": turn}

    def chosen(state: dict[str, Any], *, learnt_share: float = 0.5, **options: float) -> int:
        options = {"learnt_share": learnt_share, "excess_limit": 3.0} | options
        return choose("trust", rows, [9.0] * 4, state, models, mine, **options).selected.index

    # The lowest loss is 1, half of what it was; as much as there was to be learnt.
    assert chosen(known, z=3.0) == 0
    assert chosen(known, z=2.99) == 1
    # Half way: half of the tolerance.
    assert chosen(known, learnt_share=1.0, z=6.0) == 0
    assert chosen(known, learnt_share=1.0, z=5.99) == 1
    # Nothing is learnt, or less: only the lowest will do.
    assert chosen(known | {"began": torch.tensor(1.0, dtype=torch.float64)}, z=1e6) == 1
    assert chosen(known | {"began": torch.tensor(0.9, dtype=torch.float64)}, z=1e6) == 1
    # Where no turn is known, or the model is more than two from all others, half of z.
    strangers = {"began": known["began"]}
    assert chosen(strangers, z=6.0) == 0
    assert chosen(strangers, z=5.99) == 1
    models[0] = [2.1, 0.0, 0.0]
    assert chosen(known, z=6.0) == 0
    assert chosen(known, z=5.99) == 1
    models[0] = [1.0, 0.0, 0.0]
    # With a weight of 2 it was 1 above the lowest; with this round (0.98 · 2 + 3) / (0.98 · 2 + 1).
    records = known | {"records": {"0": torch.tensor([2.0, 2.0], dtype=torch.float64)}}
    assert chosen(records, z=3.0, excess_limit=1.676) == 0
    assert chosen(records, z=3.0, excess_limit=1.675) == 1
    assert chosen(records, z=6.0, excess_limit=1.675) == 0


def test_garbage_counts_as_three_standard_errors() -> None:
    choice = choose("trust", [[math.nan] * 4, [5.0] * 4, [1.0] * 4], [9.0] * 4)
    records = {sender: record.tolist() for sender, record in choice.state["records"].items()}
    assert records == {"0": [3.0, 1.0], "1": [3.0, 1.0], "2": [0.0, 1.0]}


def test_who_is_not_heard_in_a_round_keeps_its_record() -> None:
    rows = [[5.0] * 4, [1.0] * 4]
    before = choose("trust", rows, [9.0] * 4).state
    after = choose("trust", rows[:1], [9.0] * 4, before).state["records"]
    assert after["1"].tolist() == [0.0, 1.0]
    assert after["0"].tolist() == [0.98 * 3.0, 0.98 + 1.0]  # now the lowest


def test_where_there_was_nothing_to_gain_the_lowest_is_chosen() -> None:
    rows = [[1.0, 0.0, 0.0, 0.0], [0.0] * 4]
    known = {"began": torch.zeros((), dtype=torch.float64)}
    assert choose("trust", rows, [9.0] * 4, known).selected.index == 1


def test_nobody_goes_on_alone_twice_in_a_row() -> None:
    """One's own model is better than all others by far, in every round."""
    losses, own = [[2.0, 2.1, 2.2, 2.0], [1.9, 1.8, 2.0, 1.9]], [1.0, 1.1, 0.9, 1.0]
    state: dict[str, Any] = {}
    made = []
    for k in range(1, 5):
        choice = choose("trust", losses, own, state, mine=k * OWN)
        made.append(choice.selected.index)
        state = choice.state
    assert made == [2, 1, 2, 1]
    # It must be better beyond doubt: the second is 3 standard errors above it.
    losses[1] = [2.0, 2.1, 1.9, 1.0]
    assert choose("trust", losses, own, {}, z=2.99).selected.index == 2
    assert choose("trust", losses, own, {}, z=3.01).selected.index == 1
    # But what else, where nothing else is there?
    nothing = [[math.inf] * 4] * 2
    assert choose("trust", nothing, own, state | {"alone": torch.tensor(True)}).selected.index == 2


def test_what_one_began_with_is_ones_own_first_loss() -> None:
    first = choose("trust", [[1.0, 2.0, 3.0, 4.0]], [4.0, 4.0, 4.0, 6.0])
    assert first.state["began"] == 4.5
    known = {"began": first.state["began"]}
    assert choose("trust", [[0.5] * 4], [0.7] * 4, known).state["began"] == 4.5


def test_around_a_model_that_is_lost_there_is_no_region() -> None:
    own, far = [math.nan, 1.0, 1.0], [9.0, -9.0, 1.5]
    before = {"start": torch.tensor([0.9, 0.9, 0.9]), "sums": torch.ones(3)}
    model, state, _ = trusted(
        [far], own, {"trust": before}, [[math.inf] * 4, FAIR], region_reach=0.2
    )
    assert model == far
    found, _, _ = trusted(
        [[9.5, -9.5, 99.0]], [9.1, -9.1, 1.6], state, [BAD, GOOD], region_reach=0.2
    )
    assert found == pytest.approx([9.3, -9.3, 1.8], abs=1e-5)  # own turn: 0.1 in each coordinate


GOOD, FAIR, BAD = [1.0, 1.1, 0.9, 1.0], [1.0, 1.2, 0.9, 1.1], [3.0, 3.1, 2.9, 3.0]


def trusted(
    entries: list[list[float]],
    own: list[float],
    state: dict[str, Any],
    scores: list[list[float]],
    **options: Any,
) -> tuple[list[float], dict[str, Any], list[list[float]]]:
    """The model to train from, the new state, and which models were scored; N = 10.

    Two layers, of one and of two coordinates.  All that is stored has the same losses; `scores`:
    those of what is scored, in order.
    """
    stored = [Entry(i, 100 - i, torch.tensor(model)) for i, model in enumerate(entries)]
    promises = [Losses(torch.tensor(FAIR)) for _ in stored]
    layers = slice(0, 1), slice(1, 3)
    batch = Batch(np.arange(4))
    candidates = Candidates(stored, promises, torch.tensor(own), batch, state, layers, 10)
    steps, answer, asked = RULES["trust"](candidates, **options), None, []
    try:
        while True:
            request = steps.send(answer)
            if isinstance(request, Combine):
                answer = request.answer()
                continue
            assert isinstance(request, Score)
            asked.append(request.model.tolist())
            answer = Losses(torch.tensor(scores[len(asked) - 1]))
    except StopIteration as end:
        choice: Choice = end.value
    return tensor_of(choice.model).tolist(), choice.state, asked


def test_the_region_by_hand() -> None:
    """First turn: no region.  Then own steps of 0.1 and, in the second layer, √(0.3² + 0.4²)/2."""
    own, far = [1.0, 1.0, 1.0], [9.0, -9.0, 1.5]
    model, state, asked = trusted([far], own, {}, [BAD], region_reach=0.2)
    assert model == far
    assert asked == [own]

    now = [9.1, -8.7, 1.9]  # trained from `far`: a turn of (0.1, 0.3, 0.4)
    s = 0.1, math.sqrt((0.09 + 0.16) / 2)
    corner = [9.1 - 0.2 * 10 * s[0], -8.7 + 0.2 * 10 * s[1], 1.9]
    model, state, asked = trusted([[0.0, 5.0, 1.8]], now, state, [BAD, GOOD], region_reach=0.2)
    assert model == pytest.approx([corner[0], corner[1], 1.8], abs=1e-5)  # 1.8 was inside
    assert asked[1] == pytest.approx(model)

    # The next turn is (0, 0.3, −0.4): the first layer's mean square is (0.9 · 0.01 + 0) / 1.9.
    after = [model[0], model[1] + 0.3, model[2] - 0.4]
    reach = 2 * math.sqrt(0.9 * 0.01 / 1.9), 2 * math.sqrt(0.125)
    wild = [after[0] + 100, after[1] - 100, after[2] + 100]
    found, _, _ = trusted([wild], after, state, [BAD, GOOD], region_reach=0.2)
    expected = [after[0] + reach[0], after[1] - reach[1], after[2] + reach[1]]
    assert found == pytest.approx(expected, abs=1e-4)


def test_what_would_cost_something_is_not_pulled_in() -> None:
    own, before = [1.0, 1.0, 1.0], {"start": torch.tensor([0.9, 0.9, 0.9]), "sums": torch.zeros(3)}
    state = {"trust": before}
    corner = [1.5, 0.5, 1.0]  # reach 0.5 · 10 · 0.1
    pulled, _, _ = trusted([[7.0, -7.0, 1.0]], own, state, [BAD, FAIR], region_reach=0.5)
    assert pulled == pytest.approx(corner)
    kept, _, _ = trusted([[7.0, -7.0, 1.0]], own, state, [BAD, BAD], region_reach=0.5)
    assert kept == [7.0, -7.0, 1.0]


@pytest.mark.parametrize(
    ("rule", "options", "sentence"),
    [
        ("freshest", {"z": -1.0}, "scheme.z"),
        ("gauntlet", {"memory": 0.0}, "scheme.memory"),
        ("trust", {"learnt_share": 0.0}, "scheme.learnt_share"),
        ("trust", {"learnt_share": 1.1}, "scheme.learnt_share"),
        ("trust", {"excess_limit": -1.0}, "scheme.excess_limit"),
        ("trust", {"lineage_ratio": 0.9}, "scheme.lineage_ratio"),
        ("trust", {"memory": 0.0}, "scheme.memory"),
        ("trust", {"memory": 1.5}, "scheme.memory"),
        ("trust", {"region_reach": 0.0}, "scheme.region_reach"),
        ("trust", {"z": -1.0}, "scheme.z"),
    ],
)
def test_wrong_options(rule: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        choose(rule, [[1.0, 2.0, 3.0, 4.0]], [1.0, 1.0, 1.0, 1.0], **options)
