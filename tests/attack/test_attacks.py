"""Every attack of the table keeps the contract; each does what its formula says."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from basil import rng
from basil.attack import ATTACKS, ArmedAttack, Knowledge, View, adversary, declares
from basil.attack.distance_cache import DistanceCache
from basil.errors import UserError
from basil.learning.layout import layout_of
from basil.learning.models import mlp
from basil.learning.pool import Batch
from basil.protocol.basil import basil
from basil.protocol.requests import Checkpoint, Observe, Pretend, Score, ScoreAll, Send, Train
from basil.testing.attacks import check_lies

from attack_helpers import LAYOUT, D, vector, view
from ring_helpers import Quadratic, plain_node, simulate_quadratic


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(sorted(ATTACKS)),
    seed=st.integers(0, 2**31),
    hidden=st.integers(1, 9),
    r=st.integers(1, 6),
)
def test_contract_of_every_attack(name: str, seed: int, hidden: int, r: int) -> None:
    """Shape and dtype kept, inputs untouched, the same name of stream gives the same lie."""
    check_lies(ATTACKS[name], seed, hidden, r)


def test_gaussian_is_standard_normal_whatever_the_honest_model() -> None:
    layout = layout_of(mlp((100,), 10))
    lie = vector("gaussian", view(layout=layout))
    assert abs(float(lie.mean())) < 5 / layout.size**0.5
    assert float(lie.std()) == pytest.approx(1, abs=0.02)
    wide = vector("gaussian", view(layout=layout), std=3.0)
    assert torch.equal(wide, 3 * lie)


def test_sign_flips() -> None:
    honest = torch.arange(1.0, D + 1)
    flipped = vector("sign-flip", view(honest=honest))
    assert torch.equal(flipped, -honest)
    patterns = set()
    for seed in range(60):
        lie = vector("layer-sign-flip", view(honest=honest, seed=seed))
        signs = [torch.unique((lie / honest)[layer]).tolist() for layer in LAYOUT.layers]
        assert all(sign in ([1.0], [-1.0]) for sign in signs)  # a whole layer or nothing of it
        patterns.add(tuple(sign[0] for sign in signs))
    assert len(patterns) == 2 ** len(LAYOUT.layers)


def test_a_layer_is_flipped_as_often_as_not() -> None:
    honest = torch.ones(D)
    lies = [vector("layer-sign-flip", view(honest=honest, k=k)) for k in range(1, 201)]
    flipped = [float(lie[layer.start]) < 0 for lie in lies for layer in LAYOUT.layers]
    assert sum(flipped) / len(flipped) == pytest.approx(0.5, abs=0.1)  # 4 standard deviations


def test_inverse_is_the_update_reversed() -> None:
    chosen, honest = torch.full((D,), 2.0), torch.full((D,), 2.5)
    lie = vector("inverse", view(chosen=chosen, honest=honest))
    assert torch.equal(lie, torch.full((D,), 1.5))
    assert torch.equal(
        vector("inverse", view(chosen=chosen, honest=honest), scale=4.0), torch.zeros(D)
    )


@settings(max_examples=25, deadline=None)
@given(r=st.integers(2, 7), seed=st.integers(0, 10**6), coordinate=st.integers(0, D - 1))
def test_hidden_is_as_far_as_distances_allow(r: int, seed: int, coordinate: int) -> None:
    """Brute force: no benign model is farther than the diameter, and one is (nearly) that far."""
    draw = rng.torch_stream(seed, "benign")
    benign = [torch.randn(D, generator=draw) for _ in range(r)]
    lie = vector("hidden", view(benign=benign), coordinate=coordinate)
    diameter = max(float((a - b).norm()) for a, b in itertools.product(benign, repeat=2))
    farthest = max(float((lie - x).norm()) for x in benign)
    assert farthest == pytest.approx(diameter, rel=1e-5)
    moved = (lie - torch.stack(benign).mean(0)).abs() > 1e-6
    assert moved.nonzero().flatten().tolist() in ([coordinate], [])
    assert (lie - torch.stack(benign).mean(0))[coordinate] >= -1e-6


def test_hidden_by_hand() -> None:
    """Benign models (0, 0) and (2, 0), shift along the second coordinate.

    Mean (1, 0), diameter 2: the largest shift has 1 + γ² = 4, so (1, √3).
    """
    layout = layout_of(torch.nn.Linear(1, 1))
    benign = [torch.tensor([0.0, 0.0]), torch.tensor([2.0, 0.0])]
    lie = vector("hidden", view(benign=benign, layout=layout))
    torch.testing.assert_close(lie, torch.tensor([1.0, 3**0.5]))
    with pytest.raises(UserError, match="2 parameters"):
        vector("hidden", view(benign=benign, layout=layout), coordinate=2)


def test_distances_are_those_of_the_models_now() -> None:
    crowd = DistanceCache()
    models = {node: torch.randn(5) for node in (3, 1, 7, 4)}
    for change in (None, 7, 3, "stack", 1, "another crowd"):
        if isinstance(change, int):
            models[change] = torch.randn(5)
        elif change == "stack":
            models[1] = torch.randn(5)
            assert torch.equal(crowd.stack(models), torch.stack(list(models.values())))
        elif change is not None:
            models = {5: torch.randn(5), **models}
        rows = torch.stack(list(models.values())).double()
        expected = torch.cdist(rows, rows) ** 2
        torch.testing.assert_close(crowd.squared_distances(models), expected, atol=1e-5, rtol=1e-5)


def test_stale_repeats_its_first_model() -> None:
    first = view(honest=torch.ones(D))
    assert torch.equal(vector("stale", first), torch.ones(D))
    later = View(**{**vars(first), "honest": torch.zeros(D)})
    assert torch.equal(vector("stale", later), torch.ones(D))


@pytest.mark.parametrize(
    ("kind", "is_it"),
    [
        ("nan", lambda x: x.isnan()),
        ("inf", lambda x: x == torch.inf),
        ("-inf", lambda x: x == -torch.inf),
        ("huge", lambda x: x.isfinite() & (x > 1e38)),
    ],
)
def test_garbage_of_each_kind(kind: str, is_it: object) -> None:
    lie = ATTACKS["garbage"](view(), kind=kind)
    assert bool(is_it(lie).all())  # type: ignore[operator]


def test_mixed_garbage_always_holds_some() -> None:
    for seed in range(20):
        lie = vector("garbage", view(seed=seed))
        assert bool((~lie.isfinite() | (lie.abs() > 1e38)).any())
    with pytest.raises(UserError, match="mixed, nan"):
        ATTACKS["garbage"](view(), kind="soup")


# -- the adversary -------------------------------------------------------------------------------


def pump(attack: str, start: int, rounds: int = 3, every: int = 1, **changes: Any) -> list[object]:
    """Drive one Byzantine node by hand and note what it asks for."""
    problem = Quadratic((1.0, 2.0, 3.0), x0=0.0)
    asked: list[object] = []

    # A ring of one that never hears anybody: each Receive times out at once.
    from basil.protocol.requests import Missing, Receive, Select

    compute = problem.compute()
    node = plain_node(0, compute, rounds=rounds, **changes)
    armed = ArmedAttack(ATTACKS[attack], ATTACKS.options(attack), start, every)
    protocol = adversary(node, basil, armed, Knowledge(compute.layout))
    answer: object = None
    while True:
        try:
            request = protocol.send(answer)
        except StopIteration:
            return asked
        asked.append(request)
        match request:
            case Score():
                answer = compute.score(request.model, [request.batch])[0]
            case ScoreAll():
                answer = compute.score_all(request.models, request.batch)
            case Train():
                answer = compute.train(request.model, request.batches, request.rate, request.key)
            case Select():
                answer = compute.select(request.models, request.losses, request.own, request.pick)
            case Receive():
                answer = Missing(request.until)
            case Send():
                answer = float(len(asked))
            case Observe():
                answer = {1: torch.ones(1), 2: torch.zeros(1)}
            case _:
                answer = None


def test_only_an_omniscient_attack_may_look_at_the_others() -> None:
    assert any(isinstance(request, Observe) for request in pump("hidden", start=1))
    of_units = ("rescale", "permute", "ballast", "twins")  # which a quadratic has not
    for name in ATTACKS:
        if not ATTACKS[name].omniscient and name not in of_units:
            assert not any(isinstance(request, Observe) for request in pump(name, start=1))


def test_an_attack_is_not_shown_more_than_it_declares() -> None:
    shown = []

    @declares()
    def curious(seen: View) -> Tensor:
        shown.append(seen.benign)
        return seen.honest

    with ATTACKS.lent(curious) as name:
        pump(name, start=1)
    assert shown == [None, None, None]


def test_until_its_first_round_a_byzantine_node_is_honest() -> None:
    asked = pump("gaussian", start=3)
    sent = [float(r.body[0]) for r in asked if isinstance(r, Send)]  # type: ignore[index]
    # a = 1, rate ½, and nobody to hear from: x⁰ = 0 is all it stores, so ½ each time; then a lie.
    assert sent[:2] == [0.5, 0.5]
    assert sent[2] != 0.5
    # The work of the honest rounds is done, that of the lying one only takes its time.
    assert sum(isinstance(r, Train) for r in asked) == 2
    assert sum(isinstance(r, Pretend) and isinstance(r.request, Train) for r in asked) == 1


def test_between_its_rounds_a_byzantine_node_is_honest() -> None:
    """It lies in rounds 2 and 4: there the work only takes its time."""
    asked = pump("gaussian", start=2, rounds=5, every=2)
    sent = [float(r.body[0]) for r in asked if isinstance(r, Send)]  # type: ignore[index]
    assert [value == 0.5 for value in sent] == [True, False, True, False, True]
    assert sum(isinstance(r, Train) for r in asked) == 3
    assert sum(isinstance(r, Pretend) and isinstance(r.request, Train) for r in asked) == 2


def test_a_lie_is_tried_out_on_a_batch_of_no_turn() -> None:
    """Of node 0 of three rounds: what it would draw in rounds 4, 5 and 6."""
    drawn: dict[int, Batch] = {}

    def draw(k: int) -> tuple[Batch, ...]:
        return (drawn.setdefault(k, Batch(np.array([0]))),)

    asked = pump("brink", start=1, draw=draw)
    tried = [r for r in asked if isinstance(r, ScoreAll)]
    assert [[k for k in drawn if drawn[k] is r.batch] for r in tried] == [[4], [5], [6]]
    assert [len(r.models) for r in tried] == [4 + 1] * 3  # the honest one last
    # Once it is known what to send, all that ends a turn happens at one moment.
    last = [type(r).__name__ for r in asked[-5:]]
    assert last == ["Train", "ScoreAll", "Record", "Send", "Checkpoint"]


def test_a_checkpoint_holds_what_the_attack_remembered_then() -> None:
    @declares()
    def counts(seen: View) -> Tensor:
        seen.state["lies"] = seen.state.get("lies", 0) + 1
        return seen.honest

    with ATTACKS.lent(counts) as name:
        asked = pump(name, start=1)
    states = [r.state() for r in asked if isinstance(r, Checkpoint)]
    assert [state["attack"] for state in states] == [{"lies": 1}, {"lies": 2}, {"lies": 3}]


def test_a_silent_node_sends_to_nobody() -> None:
    assert [r.to for r in pump("silent", start=2) if isinstance(r, Send)] == [(1, 2), (), ()]


def test_lying_takes_the_time_of_an_honest_turn() -> None:
    honest = simulate_quadratic(Quadratic((1.0, 2.0, 3.0, 4.0), 0.0), 2, 3, 0.5)
    lying = simulate_quadratic(Quadratic((1.0, 2.0, 3.0, 4.0), 0.0), 2, 3, 0.5, sends={2: 50.0})
    assert [t.time for t in lying] == [t.time for t in honest]


def test_colluders_share_a_stream_with_nobody() -> None:
    lies = [vector("gaussian", replace(view(k=k), node=n)) for n, k in ((1, 1), (1, 2), (2, 1))]
    for a, b in itertools.combinations(lies, 2):
        assert not np.allclose(a.numpy(), b.numpy())
