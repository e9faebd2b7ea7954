"""Rules beyond the paper's, each against a literal twin in plain Python."""

import math
import statistics
from collections.abc import Sequence
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
from basil.protocol.rules import RULES, Candidates, Choice
from basil.protocol.rules.excess import excess as rules_excess
from basil.protocol.rules.lineage import PIECE, Length, lineage
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
    classes: list[int] | None = None,
    **options: Any,
) -> Choice:
    """`losses`: the nearest predecessor's first; its sender is 0.  `own`: those of `mine`."""
    models = models or [[float(i)] * 3 for i in range(len(losses))]
    entries = [Entry(i, 100 - i, torch.tensor(model)) for i, model in enumerate(models)]
    promises = [Losses(torch.tensor(row)) for row in losses]
    batch = Batch(np.arange(len(losses[0])), None if classes is None else np.array(classes))
    candidates = Candidates(entries, promises, mine, batch, state or {})
    return answered(RULES[rule](candidates, **options), own)


def excess(row: list[float], reference: list[float], classes: Sequence[int] | None = None) -> float:
    """mean / standard error of the paired differences."""
    gaps = [a - b for a, b in zip(row, reference, strict=True)]
    mean = statistics.fmean(gaps)
    if mean == 0:
        return 0.0
    spread = statistics.stdev(gaps)
    if classes is not None and len(set(classes)) < len(classes):
        known = {c: statistics.fmean(gaps[i] for i in members(classes, c)) for c in classes}
        squares = sum((gap - known[c]) ** 2 for gap, c in zip(gaps, classes, strict=True))
        spread = math.sqrt(squares / (len(classes) - len(known)))
    return math.copysign(math.inf, mean) if spread == 0 else mean / (spread / math.sqrt(len(gaps)))


def members(classes: Sequence[int], c: int) -> list[int]:
    return [i for i, other in enumerate(classes) if other == c]


def test_standard_errors_within_classes_by_hand() -> None:
    """Gaps of 1 and 3 in one class, 11 and 13 in the other: 7 on average, 2 · √½ within classes."""
    gaps, zeros = torch.tensor([1.0, 11.0, 3.0, 13.0]), torch.zeros(4)
    t = rules_excess(gaps, zeros, torch.tensor([0, 1, 0, 1]))
    assert float(t) == pytest.approx(7 / (math.sqrt(2) / 2))
    alone = rules_excess(gaps, zeros, torch.tensor([3, 1, 0, 2]))  # no class has two
    assert float(alone) == pytest.approx(float(rules_excess(gaps, zeros)))


def test_harm_to_one_class_is_no_excuse() -> None:
    """However large it is: of 32 samples of ten classes, three belong to the one that suffers."""
    classes = torch.arange(32) % 10
    noise = 0.01 * torch.linspace(-1, 1, 32)[torch.randperm(32, generator=torch.manual_seed(0))]
    for harm in (1.0, 100.0):
        gaps = noise + harm * (classes == 9)
        assert rules_excess(gaps, torch.zeros(32)) < 2
        assert rules_excess(gaps, torch.zeros(32), classes) > 20


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


def lineage_literally(models: list[Vector], norm: float, peak: float, kin: float) -> list[int]:
    """Turns in each."""
    turns = [0] * len(models)
    for j in reversed(range(len(models))):
        older = range(j + 1, len(models))
        parent = min(older, key=lambda k: math.dist(models[j], models[k]), default=None)
        if parent is None:
            continue
        gaps = [abs(x - y) for x, y in zip(models[j], models[parent], strict=True)]
        if math.hypot(*gaps) <= kin * norm and max(gaps) <= kin * peak:
            turns[j] = turns[parent] + (math.hypot(*gaps) >= norm / kin)
    return turns


def turns_in(models: list[Vector], usual: Length, ratio: float, origin: float = 0.0) -> list[float]:
    """As a GPU finds them, and as a CPU does."""
    there = torch.full((len(models[0]),), origin)
    matrix = lineage(torch.tensor(models), there, usual, ratio)
    rows = lineage([torch.tensor(model) for model in models], there, usual, ratio)
    assert matrix.tolist() == rows.tolist()
    return rows.tolist()


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
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 12),
    peak=st.sampled_from([0.41, 5.0]),
    kin=st.sampled_from([1.2, 2.1]),
)
def test_lineage_against_a_literal_twin(seed: int, count: int, peak: float, kin: float) -> None:
    models = family(seed, count)
    usual = Length(torch.tensor(1.07), torch.tensor(peak))
    assert turns_in(models, usual, kin) == lineage_literally(models, 1.07, peak, kin)


def test_lineage_in_pieces() -> None:
    """As many turns, wherever the coordinates lie that differ."""
    usual, some = Length(torch.tensor(1.07), torch.tensor(0.6)), [0, PIECE + 1, 2 * PIECE]
    for seed in range(20):
        models = torch.tensor(family(seed, 8))
        wide = torch.ones(8, 2 * PIECE + 1)
        wide[:, some] = models
        turns = turns_in(wide.tolist(), usual, 2.1, origin=1.0)
        assert turns == lineage_literally(models.tolist(), 1.07, 0.6, 2.1)


def test_turns_by_hand() -> None:
    """Turns of length 1 along a line, 0 ← 1 ← 2 ← 3; a copy of 2; from 1 sideways; a stranger."""
    models = [[1.0, 1.0], [3.0, 0.0], [50.0, 0.0], [2.1, 0.0], [2.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    usual = Length(torch.tensor(1.0), torch.tensor(1.0))
    assert turns_in(models, usual, 2.0) == [2, 3, 0, 2, 2, 1, 0]
    # What is not finite, or too large to be squared, is nobody's kin, and nobody is its.
    models[2], models[3] = [math.nan, 0.0], [3e30, 0.0]
    assert turns_in(models, usual, 2.0) == [2, 3, 0, 0, 2, 1, 0]


def test_all_of_a_turn_in_one_coordinate_is_none() -> None:
    """A usual turn is 5 long and changes no coordinate by more than 4."""
    usual = Length(torch.tensor(5.0), torch.tensor(4.0))
    assert turns_in([[3.0, 4.0], [0.0, 0.0]], usual, 1.0) == [1, 0]
    assert turns_in([[0.0, 5.0], [0.0, 0.0]], usual, 1.0) == [0, 0]


def line_of_turns(away: float) -> tuple[torch.Tensor, Length]:
    """Ten models, each a turn from the one before; the first so many turns from the origin."""
    torch.manual_seed(0)
    start, steps = away * torch.randn(50_000), torch.randn(10, 50_000)
    return (start + steps.cumsum(0)).flip(0), Length(steps[0].norm(), steps[0].abs().amax())


def test_a_line_is_seen_from_a_thousand_turns_away() -> None:
    models, turn = line_of_turns(1000)
    assert turns_in(models.tolist(), turn, 1.3) == list(reversed(range(10)))


def test_on_a_gpu_it_is_seen_from_farther_than_single_precision_allows() -> None:
    models, turn = line_of_turns(10_000)
    turns = lineage(models, torch.zeros(50_000), turn, 1.3)
    assert turns.tolist() == list(reversed(range(10)))


def test_rounding_beside_a_far_origin_changes_no_length() -> None:
    """Squared, 3 is lost beside 10⁶; the step between the two models is as long as it is."""
    models, usual = [[0.0, 3.0], [0.0, 0.0]], Length(torch.tensor(3.0), torch.tensor(3.0))
    for norm, turns in ((3.0, 1), (2.9, 0)):
        length = usual._replace(norm=torch.tensor(norm))
        assert turns_in(models, length, 1.0, origin=1e6) == [turns, 0]


def trust_literally(
    rounds: list[Table],
    models: list[list[Vector]],
    *,
    z: float,
    lineage_ratio: float,
    memory: float,
    classes: list[int] | None = None,
) -> list[int]:
    """Index chosen in each round.  One's own models are OWN, 2 OWN, …

    The last row of a round's losses is that of one's own model, of which the first counts.
    """
    began = statistics.fmean(rounds[0][-1])
    made: list[int] = []
    excesses: list[list[float]] = [[] for _ in models[0]]  # of each sender, the latest first
    norms = peaks = weights = 0.0
    for table, stored in zip(rounds, models, strict=True):
        turns = [0] * len(stored)
        if made:
            last, now = ((r * OWN).tolist() for r in (len(made), len(made) + 1))
            start = [*models[len(made) - 1], last][made[-1]]
            gaps = [abs(x - y) for x, y in zip(start, now, strict=True)]
            norms = memory * norms + math.hypot(*gaps) ** 2
            peaks = memory * peaks + max(gaps) ** 2
            weights = memory * weights + 1
            usual = math.sqrt(norms / weights), math.sqrt(peaks / weights)
            turns = lineage_literally(stored, *usual, lineage_ratio)
        best = min(table[:-1], key=statistics.fmean)
        learnt = -excess(best, [began] * len(best))
        tolerance = max(0.0, min(z, learnt))
        above = [excess(row, best, classes) for row in table[:-1]]
        for known, far in zip(excesses, above, strict=True):
            known.insert(0, min(far, z))
        weights_of = [memory**a for a in range(len(excesses[0]))]
        average = [statistics.fmean(known, weights_of) for known in excesses]
        error = math.hypot(*weights_of) / sum(weights_of)  # of each; of a difference √2 times that
        near = [j for j, far in enumerate(above) if far <= tolerance]
        limit = min(average) + z * math.sqrt(2) * error
        near = [j for j in near if average[j] <= limit] or near
        order = {j: (turns[j], -statistics.fmean(table[j]), -j) for j in near}
        made.append(max(order, key=order.__getitem__, default=len(table) - 1))
    return made


positive = st.integers(1, 80).map(lambda n: n / 4)
gained = st.lists(st.lists(positive, min_size=4, max_size=4), min_size=7, max_size=7)


@settings(deadline=None, max_examples=400)
@given(
    rounds=st.lists(gained, min_size=1, max_size=4),
    seed=st.integers(0, 10**6),
    classes=st.none() | st.lists(st.integers(0, 2), min_size=4, max_size=4),
)
def test_trust_against_a_literal_twin(
    rounds: list[Table], seed: int, classes: list[int] | None
) -> None:
    options: dict[str, Any] = {"z": 1.31, "lineage_ratio": 2.1, "memory": 0.9, "classes": classes}
    models = [family(seed + i, 6, turn=3.0) for i in range(len(rounds))]
    state: dict[str, Any] = {}
    made = []
    for k, (table, stored) in enumerate(zip(rounds, models, strict=True), 1):
        choice = choose("trust", table[:-1], table[-1], state, stored, k * OWN, **options)
        made.append(choice.selected.index)
        state = choice.state
    assert made == trust_literally(rounds, models, **options)


def test_how_far_above_the_lowest_one_may_be() -> None:
    """Sender 0 is 3 standard errors above the lowest: gaps of 1, 1, 1, 0, on average ¾ ± ¼.

    And its model is one turn away from sender 1's, whose loss is the lowest: the state says that
    turns have a length of 1.
    """
    rows = [[2.0, 2.0, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    models = [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    mine = torch.tensor([0.0, 3.0, 4.0])
    turn = {"start": torch.tensor([0.0, 3.0, 3.0]), "sums": torch.zeros(3)}

    def chosen(began: float, z: float) -> int:
        known = {"began": torch.tensor(began).double(), **turn}
        return choose("trust", rows, [9.0] * 4, known, models, mine, z=z).selected.index

    assert chosen(began=2.0, z=3.0) == 0
    assert chosen(began=2.0, z=2.99) == 1
    # Nothing is learnt, or less: only the lowest will do.
    assert chosen(began=1.0, z=1e6) == 1
    assert chosen(began=0.9, z=1e6) == 1
    # In the first round no turn is known.
    assert choose("trust", rows, [2.0] * 4, {}, models, mine, z=6.0).selected.index == 1
    # A model that is more than two turns from all others has none more.
    models[0] = [2.1, 0.0, 0.0]
    assert chosen(began=2.0, z=6.0) == 1


def test_who_is_a_little_above_the_lowest_round_after_round_is_doubted() -> None:
    """Sender 0 is 3 standard errors above the lowest, every time, which z = 3.2 tolerates.

    With weights 1, 0.9, 0.81 the standard error of a difference of averages is √2 times 1, 0.71,
    0.58; times 3.2 that is 4.5, 3.2, 2.6.
    """
    rows = [[2.0, 2.0, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    models = [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]  # sender 0's has one turn more
    mine = torch.tensor([0.0, 3.0, 4.0])
    turn = {"start": torch.tensor([0.0, 3.0, 3.0]), "sums": torch.zeros(3)}
    state: dict[str, Any] = {"began": torch.tensor(9.0).double(), **turn}

    def chosen(rows: Table, **options: Any) -> int:
        nonlocal state
        choice = choose("trust", rows, [9.0] * 4, state, models, mine, z=3.2, **options)
        state = choice.state | turn
        return choice.selected.index

    assert [chosen(rows) for _ in range(20)] == [0, 0] + 18 * [1]
    # Now it is the lowest itself, and nobody else is near: its average is 2.7, and the other's 0.4.
    assert chosen([rows[1], [3.0, 3.0, 3.0, 3.0]]) == 0
    assert [chosen(rows, memory=0.0) for _ in range(2)] == [0, 0]  # what was is forgotten


def test_what_is_remembered_of_a_sender() -> None:
    """Σ μ^a t, Σ μ^a and Σ μ^2a, of excesses t up to z."""
    rows = [[math.nan] * 4, [2.0, 2.0, 2.0, 1.0], [1.0] * 4]
    state = choose("trust", rows, [9.0] * 4, z=3.5).state
    records = {sender: record.tolist() for sender, record in state["records"].items()}
    assert records == {"0": [3.5, 1, 1], "1": [3, 1, 1], "2": [0, 1, 1]}
    # Who is not heard in a round keeps its record.
    after = choose("trust", [[5.0] * 4], [9.0] * 4, state, z=3.5).state["records"]
    assert after["1"].tolist() == [3, 1, 1]
    assert after["0"].tolist() == pytest.approx([0.9 * 3.5, 1.9, 1.81])  # now the lowest


def test_where_there_was_nothing_to_gain_the_lowest_is_chosen() -> None:
    rows = [[1.0, 0.0, 0.0, 0.0], [0.0] * 4]
    assert choose("trust", rows, [0.0] * 4).selected.index == 1


def test_of_models_with_as_many_turns_the_one_with_the_lowest_loss() -> None:
    rows = [[1.1, 1.3, 1.2, 1.0], [1.0, 1.3, 1.1, 1.0]]
    assert choose("trust", rows, [9.0] * 4, z=3.0).selected.index == 1


def test_one_goes_on_alone_only_if_nothing_else_is_finite() -> None:
    """However good one's own model is: it was trained on the samples that would judge it."""
    losses, own = [[2.0, 2.1, 2.2, 2.0], [1.9, 1.8, 2.0, 1.9]], [1.0, 1.1, 0.9, 1.0]
    assert choose("trust", losses, own).selected.index == 1
    assert choose("trust", [[math.inf] * 4, [math.nan] * 4], own).selected.index == 2


def test_what_one_began_with_is_ones_own_first_loss() -> None:
    first = choose("trust", [[1.0, 2.0, 3.0, 4.0]], [4.0, 4.0, 4.0, 6.0])
    assert first.state["began"] == 4.5
    assert choose("trust", [[0.5] * 4], [0.7] * 4, first.state).state["began"] == 4.5


def test_after_a_model_that_got_out_of_hand_turns_are_measured_anew() -> None:
    known = choose("trust", [[1.0] * 4], [2.0] * 4).state | {"sums": torch.ones(3)}
    lost, rows = torch.tensor([math.nan, 1.0, 1.0]), [[1.0, 1.1, 0.9, 1.0]]
    choice = choose("trust", rows, [math.inf] * 4, known, [[9.0, 9.0, 9.0]], lost)
    assert choice.state["sums"].tolist() == [0.0] * 3
    now = torch.tensor([9.0, 6.0, 13.0])  # a turn of (0, −3, 4)
    again = choose("trust", rows, [9.0] * 4, choice.state, [[9.0, 9.0, 9.0]], now)
    assert again.state["sums"].tolist() == [25.0, 16.0, 1.0]


@pytest.mark.parametrize(
    ("rule", "options", "sentence"),
    [
        ("freshest", {"z": -1.0}, "scheme.z"),
        ("gauntlet", {"memory": 0.0}, "scheme.memory"),
        ("trust", {"lineage_ratio": 0.9}, "scheme.lineage_ratio"),
        ("trust", {"memory": -0.1}, "scheme.memory"),
        ("trust", {"memory": 1.5}, "scheme.memory"),
        ("trust", {"z": -1.0}, "scheme.z"),
    ],
)
def test_wrong_options(rule: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        choose(rule, [[1.0, 2.0, 3.0, 4.0]], [1.0, 1.0, 1.0, 1.0], **options)
