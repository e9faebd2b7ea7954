"""Attacks that try out the receiver's rule: against byzfl's, by hand, and on real receivers."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from basil import rng
from basil.attack import ATTACKS
from basil.attack.omniscient import largest_z
from basil.attack.rehearsal import SAMPLE, Rehearsal
from basil.attack.searched import line_maximum
from basil.learning.layout import layout_of
from basil.protocol.graph.aggregate import median, nearest_mean
from basil.protocol.graph.bridge import bridge_median
from basil.protocol.graph.mixing import MIXINGS
from basil.protocol.graph.nna import nna
from basil.protocol.graph.ubar import ubar
from basil.protocol.looks_at import ANYTHING, COORDINATES, DISTANCES, looks_at
from basil.protocol.node import Node
from basil.protocol.schemes import GRAPH_SCHEMES
from basil.table import states
from basil.topology.graph import Graph

from attack_helpers import D, view
from ring_helpers import Quadratic, plain_node

PAIR = layout_of(torch.nn.Linear(1, 1))


def models(r: int, seed: int) -> list[Tensor]:
    draw = rng.torch_stream(seed, "benign")
    return [torch.randn(D, generator=draw) for _ in range(r)]


def complete(r: int, b: int) -> dict[int, dict[int, float]]:
    """Benign nodes 10, 11, … and Byzantine 1, 2, …, all neighbours, with equal weights."""
    everybody = (*range(10, 10 + r), *range(1, 1 + b))
    return {j: {k: 1 / (r + b) for k in everybody if k != j} for j in everybody}


@pytest.mark.parametrize(("seed", "b"), [(0, 1), (1, 1), (0, 3), (1, 3)])
def test_the_optimal_attacks_are_byzfls(byzfl: Any, seed: int, b: int) -> None:
    """Against a median, which makes no difference between oneself and others."""
    benign = models(7, seed)

    def median_of_all(j: int, own: Tensor, sent: Mapping[int, Tensor]) -> Tensor:
        return median(own, torch.stack(list(sent.values())))

    seen = view(
        benign=benign,
        weights=complete(7, b),
        colluders=frozenset(range(1, b + 1)),
        receivers=(10, 12, 2),
        outcome=median_of_all,
    )
    stack = torch.stack(benign)
    how: dict[str, Any] = {"agg": byzfl.Median(), "pre_agg_list": [], "f": b, "evals": 20}
    alie = ATTACKS["optimal-alie"](seen)
    assert isinstance(alie, dict)
    assert torch.equal(alie[2], seen.honest)
    # byzfl goes up from the mean and we go down: the same, mirrored at 0.
    expected = -byzfl.Optimal_ALittleIsEnough(**how)(-stack)
    for j in (10, 12):
        torch.testing.assert_close(alie[j], expected, atol=1e-4, rtol=1e-4)
    ipm = ATTACKS["optimal-ipm"](seen)
    assert isinstance(ipm, dict)
    for j in (10, 12):
        x = benign[j - 10]
        expected = byzfl.Optimal_InnerProductManipulation(**how)(stack - x)
        torch.testing.assert_close(ipm[j] - x, expected, atol=1e-4, rtol=1e-4)


def test_the_line_search_by_hand() -> None:
    """From 0 by 10, 20, 40: 70 is too far; then by 32, 25.6, … to the highest point below."""
    asked = []

    def hill(x: float) -> float:
        asked.append(x)
        return 100 - abs(x - 50)

    best = line_maximum(hill, 6)
    assert asked == [0.0, 10.0, 30.0, 70.0, 62.0, pytest.approx(62 + 25.6)]
    assert best == 62.0


def test_harm_is_the_distance_from_what_the_benign_alone_would_make() -> None:
    """Node 10 at 0 hears 10 with weight ½: 5.  A lie of 0 leaves it at 4, a lie of −50 at 1."""
    seen = view(
        benign={10: torch.zeros(1), 11: torch.full((1,), 10.0)},
        weights={10: {11: 0.5, 1: 0.5}},
        receivers=(10,),
        outcome=lambda j, own, sent: own + (4.0 if sent[1] == 0.0 else 1.0),
    )
    lies = ATTACKS["optimal-ipm"](seen, tries=2)
    assert isinstance(lies, dict)
    assert lies[10] == -50.0


def test_where_a_rule_cannot_be_tried_out_the_length_is_fixed() -> None:
    benign = models(4, 0)
    seen = view(benign=benign, weights=complete(4, 1))
    stack, x = torch.stack(benign), benign[0]
    mean, sigma = stack.mean(0), stack.std(0, correction=0)
    for name, expected in (
        ("optimal-alie", mean - largest_z(5, 1) * sigma),
        ("optimal-ipm", x - 0.1 * (mean - x)),
    ):
        lies = ATTACKS[name](seen)
        assert isinstance(lies, dict)
        assert torch.allclose(lies[10], expected, atol=1e-6)
    as_ever, lies = ATTACKS["dissensus"](seen), ATTACKS["optimal-dissensus"](seen)
    assert isinstance(as_ever, dict)
    assert isinstance(lies, dict)
    assert torch.allclose(lies[11], as_ever[11], atol=1e-5)


def test_spectral_by_hand() -> None:
    """A path 10 – 11 – 12: its Fiedler vector is (1, 0, −1)/√2, so 11 is told where it is.

    At 0, 5 and 4 it lies along −4/√2; 10 is told 0 − 2c, and 12 is told 4 + 2c.
    """
    benign = {10: torch.tensor([0.0, 1.0]), 11: torch.tensor([5.0, 1.0])}
    benign[12] = torch.tensor([4.0, 1.0])
    weights = {10: {11: 0.3, 1: 0.3}, 11: {10: 0.3, 12: 0.3, 1: 0.3}, 12: {11: 0.3, 1: 0.3}}
    seen = view(benign=benign, weights=weights, receivers=(10, 11, 12), layout=PAIR)
    lies = ATTACKS["spectral"](seen, factor=3.0)
    assert isinstance(lies, dict)
    for j, x in ((10, -6.0), (11, 5.0), (12, 10.0)):
        assert torch.allclose(lies[j], torch.tensor([x, 1.0]), atol=1e-5)
    fixed = ATTACKS["spectral"](seen)
    assert isinstance(fixed, dict)
    assert torch.allclose(fixed[10], torch.tensor([-2.0, 1.0]), atol=1e-5)


# -- rehearsals ----------------------------------------------------------------------------------

NUMBERS = {1: 1.0, 2: 2.0, 3: 3.0, 4: 40.0}


def rehearsed(scheme: Any, sent: dict[int, float], own: float = 0.0) -> Tensor | None:
    compute = Quadratic((0.0,) * 5, x0=7.0).compute()
    node = plain_node(0, compute, neighbours=(1, 2, 3, 4), rounds=9, byzantine=1)
    rehearsal = Rehearsal(lambda j: node, scheme, ANYTHING)
    return rehearsal.outcome(
        5, 0, torch.tensor([own]), {j: torch.tensor([x]) for j, x in sent.items()}
    )


def test_a_rehearsal_ends_with_what_the_rule_makes() -> None:
    made = rehearsed(nna, NUMBERS)
    assert made is not None
    stack = torch.tensor([[x] for x in NUMBERS.values()])
    assert torch.equal(made, nearest_mean(torch.zeros(1), stack, 3))  # (0 + 1 + 2 + 3) / 4
    assert rehearsed(bridge_median, NUMBERS) == pytest.approx(2.0)  # of 0, 1, 2, 3, 40
    assert rehearsed(bridge_median, {1: 1.0, 2: 2.0}) == pytest.approx(1.0)  # two are silent


def test_a_rule_that_asks_for_losses_cannot_be_rehearsed() -> None:
    assert rehearsed(ubar, NUMBERS) is None


# -- shorter vectors -----------------------------------------------------------------------------

STATED = {name: looks_at(scheme) for name, scheme in GRAPH_SCHEMES.items()}
LENGTH = SAMPLE + 500


def around(name: str, mixing: str = "none", seed: int = 0) -> tuple[Rehearsal, dict[int, Tensor]]:
    """How node 0 combines nine models that lie near each other, and these; three lie far away."""
    graph = Graph(tuple(tuple(j for j in range(9) if j != i) for i in range(9)))
    scheme, mix = GRAPH_SCHEMES[name], MIXINGS[mixing]

    def place(j: int) -> Node:
        weights = {k: 0.02 * k for k in range(1, 9)}
        return plain_node(
            j,
            Quadratic((0.0,) * 9, x0=0.0).compute(),
            graph=graph,
            neighbours=tuple(range(1, 9)),
            weights=weights,
            mixing=mix,
            rounds=9,
            byzantine=3,
        )

    draw = rng.torch_stream(seed, "models")
    centre = torch.randn(LENGTH, generator=draw)
    found = {i: centre + 0.1 * torch.randn(LENGTH, generator=draw) for i in range(9)}
    for i in range(6, 9):
        found[i] += 0.3 * i * torch.randn(LENGTH, generator=draw)
    return Rehearsal(place, scheme, looks_at(scheme, mix)), found


def both(rehearsal: Rehearsal, models: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
    """What node 0 makes of the models, and of their shadows."""
    shadows = dict(zip(models, rehearsal.shadows(models.values()), strict=True))
    made = []
    for each in (models, shadows):
        outcome = rehearsal.outcome(3, 0, each[0], {i: each[i] for i in range(1, 9)})
        assert outcome is not None
        made.append(outcome)
    return made[0], made[1]


def distances(found: Tensor, models: Iterable[Tensor]) -> list[float]:
    return [float((found - model).norm()) for model in models]


@pytest.mark.parametrize("mixing", ["none", "nnm", "bucketing"])
@pytest.mark.parametrize("name", [n for n, stated in STATED.items() if stated == DISTANCES])
def test_who_looks_at_distances_does_the_same_with_nine_numbers(name: str, mixing: str) -> None:
    for seed in range(3):
        rehearsal, models = around(name, mixing, seed)
        whole, short = both(rehearsal, models)
        shadows = rehearsal.shadows(models.values())
        assert shadows.shape == (9, 9)
        expected = distances(whole, models.values())
        assert distances(short, shadows) == pytest.approx(expected, rel=1e-3)


def test_clipping_is_the_same_with_nine_numbers() -> None:
    """What is clipped lies at one distance.  Who sets the farthest aside takes any of these."""
    for name in ("g-plain", "cs+", "ios"):
        rehearsal, models = around(name, "arc")
        whole, short = both(rehearsal, models)
        expected = distances(whole, models.values())
        found = distances(short, rehearsal.shadows(models.values()))
        assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("name", ["bridge", "bridge-median"])
def test_who_looks_at_coordinates_does_the_same_with_some_of_them(name: str) -> None:
    rehearsal, models = around(name)
    whole, short = both(rehearsal, models)
    assert short.shape == (SAMPLE,)
    assert torch.equal(short, rehearsal.shadows([whole])[0])


@pytest.mark.parametrize(("name", "mixing"), [("rpel", "none"), ("bridge", "nnm")])
def test_nearest_neighbours_in_some_coordinates_are_about_the_same(name: str, mixing: str) -> None:
    rehearsal, models = around(name, mixing)
    whole, short = both(rehearsal, models)
    expected = (SAMPLE / LENGTH) ** 0.5 * float((whole - models[0]).norm())
    shadows = rehearsal.shadows(models.values())
    assert float((short - shadows[0]).norm()) == pytest.approx(expected, rel=0.05)


def test_other_rules_see_models_whole() -> None:
    @states(looks_at=COORDINATES)
    def by_coordinate() -> None: ...

    def somebodys() -> None: ...

    assert looks_at(by_coordinate, MIXINGS["nnm"]) == COORDINATES
    assert looks_at(nna, somebodys) == looks_at(somebodys, by_coordinate) == ANYTHING
    assert STATED["ubar"] == STATED["sketchguard"] == ANYTHING
    rehearsal, models = around("sketchguard")
    assert torch.equal(rehearsal.shadows(models.values()), torch.stack(list(models.values())))


def test_the_length_found_is_the_one_found_with_whole_models() -> None:
    benign = models(7, 0)
    rehearsal = Rehearsal(_complete_place, nna, DISTANCES)
    found = []
    for shadows in (rehearsal.shadows, lambda rows: torch.stack(list(rows))):
        seen = view(
            benign=benign,
            weights=complete(7, 3),
            colluders=frozenset((1, 2, 3)),
            outcome=partial(rehearsal.outcome, 3),
        )
        lies = ATTACKS["optimal-ipm"](replace(seen, shadows=shadows))
        assert isinstance(lies, dict)
        found.append(lies[10])
    torch.testing.assert_close(*found)


def _complete_place(j: int) -> Node:
    weights = complete(7, 3)
    compute = Quadratic((0.0,) * 3, x0=0.0).compute()
    place = {"neighbours": tuple(weights[j]), "weights": weights[j], "byzantine": 3}
    return plain_node(j, compute, rounds=9, **place)
