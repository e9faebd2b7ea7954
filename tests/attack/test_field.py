"""Attacks of the field against their formulas: by hand, and by a slow twin in float64."""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from basil import rng
from basil.attack import ATTACKS, ArmedAttack, Knowledge, View, adversary, armed, declares
from basil.attack.omniscient import largest_z
from basil.errors import UserError
from basil.learning.layout import layout_of
from basil.learning.pool import Batch
from basil.protocol.node import Node
from basil.protocol.requests import Checkpoint, Protocol, Send, Train
from basil.topology import Ring

from attack_helpers import LAYOUT, D, view
from ring_helpers import Quadratic, plain_node

PAIR = layout_of(torch.nn.Linear(1, 1))  # a model of two numbers


def models(r: int, seed: int) -> list[Tensor]:
    draw = rng.torch_stream(seed, "benign")
    return [torch.randn(D, generator=draw) for _ in range(r)]


def lie(name: str, seen: View, **options: object) -> Tensor:
    found = ATTACKS[name](seen, **options)
    assert isinstance(found, Tensor)
    return found


# -- alie ----------------------------------------------------------------------------------------


def test_alie_by_hand() -> None:
    """Benign (0, 1) and (4, 1): mean (2, 1), standard deviation (2, 0); two of them off."""
    benign = [torch.tensor([0.0, 1.0]), torch.tensor([4.0, 1.0])]
    found = lie("alie", view(benign=benign, layout=PAIR), z=2.0)
    assert torch.equal(found, torch.tensor([-2.0, 1.0]))


@settings(max_examples=25, deadline=None)
@given(r=st.integers(1, 8), seed=st.integers(0, 10**6), z=st.floats(0.01, 5))
def test_alie_is_mean_less_deviations(r: int, seed: int, z: float) -> None:
    benign = models(r, seed)
    found = lie("alie", view(benign=benign), z=z)
    table = np.array([x.numpy() for x in benign], dtype=np.float64)
    np.testing.assert_allclose(found, table.mean(0) - z * table.std(0), atol=1e-5)


@given(n=st.integers(2, 200), data=st.data())
def test_z_is_the_largest_that_leaves_enough_supporters(n: int, data: st.DataObject) -> None:
    """Baruch et al., Algorithm 3, with less than half of the nodes lying."""
    m = data.draw(st.integers(1, max(1, (n - 1) // 2)))
    z = largest_z(n, m)
    supporters = math.floor(n / 2 + 1) - m
    share = (n - m - supporters) / (n - m)
    if share > 0.5:
        assert NormalDist().cdf(z) == pytest.approx(share, abs=1e-9)
    else:
        assert z == 0
    assert math.isfinite(z)


def test_z_by_hand() -> None:
    """n = 50, m = 24: 26 − 24 = 2 supporters, so Φ(z) = 24/26."""
    assert largest_z(50, 24) == pytest.approx(1.426, abs=1e-3)
    assert all(math.isfinite(largest_z(n, m)) for n in range(2, 12) for m in range(1, n))
    benign = models(21, 0)
    byzantine = frozenset(range(9))
    by_formula = lie("alie", view(benign=benign, colluders=byzantine))
    assert torch.equal(by_formula, lie("alie", view(benign=benign), z=largest_z(30, 9)))


# -- ipm and mimic -------------------------------------------------------------------------------


def test_ipm_by_hand() -> None:
    """From x̄ = (1, 1) the benign went to (3, 1) and (3, 5): on average by (2, 2); a half, back."""
    benign = [torch.tensor([3.0, 1.0]), torch.tensor([3.0, 5.0])]
    seen = view(benign=benign, chosen=torch.ones(2), layout=PAIR)
    assert torch.equal(lie("ipm", seen, epsilon=0.5), torch.zeros(2))


@settings(max_examples=20, deadline=None)
@given(r=st.integers(1, 6), seed=st.integers(0, 10**6), epsilon=st.floats(0.01, 10))
def test_ipm_has_a_negative_inner_product_with_the_mean_update(
    r: int, seed: int, epsilon: float
) -> None:
    benign = models(r, seed)
    seen = view(benign=benign, seed=seed)
    update = torch.stack(benign).mean(0) - seen.chosen
    sent = lie("ipm", seen, epsilon=epsilon) - seen.chosen
    assert float(sent @ update) < 0
    assert float(sent.norm() / update.norm()) == pytest.approx(epsilon, rel=1e-3)


def test_rop_by_hand() -> None:
    """From (1, 1) all go by (0, 2); the round before by (0, 4): across is (1, 0), 270° is −(1, 0).

    First there is no round before: (1, 1) + (0, 2) − 2 (1, 0).
    """
    chosen, memory = torch.ones(2), {"update": torch.tensor([0.0, 4.0])}
    seen = view(benign=[torch.tensor([1.0, 3.0])], chosen=chosen, layout=PAIR)
    assert torch.allclose(lie("rop", seen), torch.tensor([-1.0, 3.0]), atol=1e-6)
    assert torch.equal(seen.state["update"], torch.tensor([0.0, 2.0]))
    for options, expected in (
        ({}, [-1.0, 5.0]),  # beside the last update
        ({"relocation": 0.0, "z": 0.5}, [0.0, 3.0]),  # beside this one, half as far
        ({"angle": 180.0}, [1.0, 3.0]),  # the last update, and this one's length back
    ):
        seen.state.update(memory)
        found = lie("rop", seen, **options)
        assert torch.allclose(found, torch.tensor(expected), atol=1e-5)


def test_a_free_rider_passes_on_what_it_was_given() -> None:
    seen = view()
    assert torch.equal(lie("copy", seen), seen.chosen)
    disguised = lie("copy", seen, std=0.5) - seen.chosen
    assert float(disguised.std()) == pytest.approx(0.5, rel=0.3)


def test_mimics_copy_one_benign_node_and_all_the_same() -> None:
    benign = dict(zip((10, 11, 12, 13), models(4, 0), strict=True))
    copies = []
    for node, k in itertools.product((1, 2), (1, 9)):
        seen = View(**{**vars(view(benign=benign, k=k)), "node": node})
        copies.append(lie("mimic", seen))
    assert all(torch.equal(copies[0], copy) for copy in copies)
    assert any(torch.equal(copies[0], model) for model in benign.values())
    targets = {
        next(
            n
            for n, x in benign.items()
            if torch.equal(x, lie("mimic", view(benign=benign, seed=s)))
        )
        for s in range(30)
    }
    assert targets == set(benign)  # named randomness: another seed, another target
    assert torch.equal(lie("mimic", view(benign=benign), target=12), benign[12])


# -- dissensus -----------------------------------------------------------------------------------


def test_dissensus_by_hand() -> None:
    """Receiver 10 at (0, 0), its benign neighbour 11 at (2, 0) with weight ¼, Byzantine 1 and 2: ½.

    0 − 2 · ¼ (2 − 0) / ½ = −2.  Receiver 11 hears from node 1 of those: it is told where it is.
    """
    benign = {10: torch.tensor([0.0, 0.0]), 11: torch.tensor([2.0, 0.0])}
    weights = {10: {11: 0.25, 1: 0.25, 2: 0.25}, 11: {1: 1.0}}
    seen = view(
        benign=benign,
        layout=PAIR,
        receivers=(10, 11, 2),
        colluders=frozenset({1, 2}),
        weights=weights,
        honest=torch.ones(2),
    )
    lies = ATTACKS["dissensus"](seen, epsilon=2.0)
    assert isinstance(lies, dict)
    assert list(lies) == [10, 11, 2]
    assert torch.equal(lies[10], torch.tensor([-2.0 * 0.25 * 2 / 0.5, 0.0]))
    assert torch.equal(lies[11], benign[11])
    assert torch.equal(lies[2], torch.ones(2))


@settings(max_examples=20, deadline=None)
@given(r=st.integers(2, 6), b=st.integers(1, 3), seed=st.integers(0, 10**6))
def test_dissensus_cancels_gossip(r: int, b: int, seed: int) -> None:
    """With ε = 1 a gossip average Σ_k W_jk (x_k − x_j) over all neighbours is zero for every j."""
    benign = dict(enumerate(models(r, seed), start=10))
    byzantine = frozenset(range(1, b + 1))
    draw = rng.stream(seed, "weights")
    names = (*benign, *byzantine)
    weights = {j: {k: float(draw.uniform(0.1, 1)) for k in names if k != j} for j in benign}
    seen = view(benign=benign, receivers=tuple(benign), colluders=byzantine, weights=weights)
    lies = ATTACKS["dissensus"](seen)
    assert isinstance(lies, dict)
    for j, x in benign.items():
        moved = sum(
            w * ((benign[k] if k in benign else lies[j]) - x).double()
            for k, w in weights[j].items()
        )
        assert float(moved.norm()) < 1e-4  # type: ignore[union-attr]


# -- against choice by loss ----------------------------------------------------------------------


def test_drift_by_hand() -> None:
    """From x̄ = (1, 1) an honest step of (3, 4), length 5: (1, 6); or twice that, on the first."""
    seen = view(chosen=torch.ones(2), honest=torch.tensor([4.0, 5.0]), layout=PAIR)
    assert torch.equal(lie("drift", seen), torch.tensor([1.0, 6.0]))
    assert torch.equal(lie("drift", seen, coordinate=0, scale=2.0), torch.tensor([11.0, 1.0]))


def test_rank_seeking_by_hand() -> None:
    """Four turns' work went from (1, 1) to (4, 5): x with 5/4 added to the last."""
    seen = view(chosen=torch.ones(2), honest=torch.tensor([4.0, 5.0]), layout=PAIR)
    assert torch.equal(lie("rank-seeking", seen), torch.tensor([4.0, 6.25]))
    assert torch.equal(lie("rank-seeking", seen, effort=1), torch.tensor([4.0, 10.0]))


def test_overfit_shared_by_hand() -> None:
    """Ten steps on shared samples went from (1, 1) to (4, 5): sent as it is, or leaning by 5/10."""
    seen = view(chosen=torch.ones(2), honest=torch.tensor([4.0, 5.0]), layout=PAIR)
    assert torch.equal(lie("overfit-shared", seen), torch.tensor([4.0, 5.0]))
    assert torch.equal(lie("overfit-shared", seen, scale=1.0), torch.tensor([4.0, 5.5]))


def test_betrayal_is_honest_and_then_is_not() -> None:
    for k, sign in ((1, 1), (3, 1), (4, -1)):
        seen = view(k=k)
        assert torch.equal(lie("betrayal", seen, rounds=3), sign * seen.honest)
    for k, sign in ((3, 1), (4, -1), (5, 1), (6, 1), (7, -1)):  # two good turns for each bad one
        seen = view(k=k)
        assert torch.equal(lie("betrayal", seen, rounds=3, every=3), sign * seen.honest)
    given = {"rounds": 3, "every": 2, "then": "hidden", "coordinate": 2}
    assert armed("betrayal", None, given) == (ATTACKS["hidden"], 4, 2, {"coordinate": 2})
    assert armed("betrayal", 9, {"rounds": 3, "every": 1, "then": "drift"})[1] == 9
    assert armed("hidden", None, {}) == (ATTACKS["hidden"], 20, 1, {})


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("gaussian", {"std": -1.0}, "std = -1.0: it must be more than 0"),
        ("inverse", {"scale": 0.0}, "scale = 0.0: it must be more than 0"),
        ("alie", {"z": -0.5}, "z = -0.5: it must be 0 or more"),
        ("ipm", {"epsilon": 0.0}, "epsilon = 0.0: it must be more than 0"),
        ("mimic", {"target": 1}, "target = 1: it must be a benign node: 10, 11"),
        ("dissensus", {"epsilon": -1.0}, "epsilon = -1.0: it must be more than 0"),
        ("copy", {"std": -1.0}, "std = -1.0: it must be 0 or more"),
        ("rop", {"z": 0.0}, "z = 0.0: it must be more than 0"),
        ("rop", {"memory": 1.5}, "memory = 1.5: it must be above 0, up to 1"),
        ("rop", {"relocation": -1.0}, "relocation = -1.0: it must be 0 or more"),
        ("min-sum", {"direction": "up"}, "direction = 'up': one of std, unit, sign"),
        ("spectral", {"factor": -1.0}, "factor = -1.0: it must be 0 or more"),
        ("optimal-ipm", {"tries": -1}, "tries = -1: it must be 0 or more"),
        ("drift", {"coordinate": D}, f"coordinate = {D}: the model has {D} parameters"),
        ("drift", {"scale": 0.0}, "scale = 0.0: it must be more than 0"),
        ("rank-seeking", {"effort": 0}, "effort = 0: it must be 1 or more"),
        ("overfit-shared", {"effort": 0}, "effort = 0: it must be 1 or more"),
        ("overfit-shared", {"boost": 0.0}, "boost = 0.0: it must be more than 0"),
        ("overfit-shared", {"unlearn": -1}, "unlearn = -1: it must be 0 or more"),
        ("overfit-shared", {"scale": -1.0}, "scale = -1.0: it must be 0 or more"),
        ("betrayal", {"rounds": -1}, "rounds = -1: it must be 0 or more"),
        ("betrayal", {"every": 0}, "every = 0: it must be 1 or more"),
        ("brink", {"z": -1.0}, "z = -1.0: it must be 0 or more"),
        ("brink", {"c": 0.0}, "c = 0.0: it must be more than 0"),
        ("brink", {"tries": 0}, "tries = 0: it must be 1 or more"),
        ("brink", {"direction": "up"}, "direction = 'up': one of coordinate, signs, ascent"),
        ("brink", {"coordinate": D}, f"coordinate = {D}: the model has {D} parameters"),
        ("edge", {"c": -1.0}, "c = -1.0: it must be more than 0"),
    ],
)
def test_an_option_out_of_range_is_one_sentence(
    name: str, options: dict[str, object], said: str
) -> None:
    with pytest.raises(UserError) as error:
        next(ATTACKS[name].lie(view(benign=models(2, 0)), **options))
    assert f"attack.{said}" in str(error.value)


# -- the adversary -------------------------------------------------------------------------------


def byzantine(
    scheme: object, attack: object, options: dict[str, object], **known: object
) -> Protocol:
    """Node 0 of four, which lies from the first round."""
    compute = Quadratic((1.0, 2.0, 3.0, 4.0), x0=0.0).compute()
    ring, draw = Ring((0, 1, 2, 3)), lambda k: (Batch(np.array([k])),)
    node = plain_node(0, compute, ring=ring, rounds=5, draw=draw)
    armed = ArmedAttack(attack, options)  # type: ignore[arg-type]
    return adversary(node, scheme, armed, Knowledge(compute.layout, **known))  # type: ignore[arg-type]


def test_each_receiver_gets_its_own_vector_at_one_moment() -> None:
    times = []

    def gossip(node: Node) -> Protocol:
        times.append((yield Send((3, 1, 2), 1, torch.zeros(1))))
        yield Checkpoint(2, dict)

    @declares()
    def by_name(seen: View) -> dict[int, Tensor]:
        assert seen.receivers == (3, 1, 2)
        return {node: torch.full((1,), float(node)) for node in (1, 3)}

    protocol = byzantine(gossip, by_name, {})
    first = next(protocol)
    second = protocol.send(7.0)
    checkpoint = protocol.send(7.0)
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    assert [(send.to, float(send.body)) for send in (first, second)] == [((3,), 3.0), ((1,), 1.0)]  # type: ignore[arg-type]
    assert isinstance(checkpoint, Checkpoint)
    assert times == [7.0]


def test_a_mapping_without_receivers_sends_to_nobody_and_tells_the_time() -> None:
    @declares()
    def nobody(seen: View) -> dict[int, Tensor]:
        return {}

    times = []

    def gossip(node: Node) -> Protocol:
        times.append((yield Send((1, 2), 1, torch.zeros(1))))

    protocol = byzantine(gossip, nobody, {})
    send = next(protocol)
    assert isinstance(send, Send)
    assert send.to == ()
    with pytest.raises(StopIteration):
        protocol.send(3.0)
    assert times == [3.0]


def test_rank_seeking_asks_for_the_work_of_several_turns() -> None:
    def trainer(node: Node) -> Protocol:
        model = yield Train(node.initial_model, node.draw(1), 0.5, lambda: 0)
        yield Send((1,), 1, model)

    request = next(byzantine(trainer, ATTACKS["rank-seeking"], ATTACKS.options("rank-seeking")))
    assert isinstance(request, Train)
    # Round 1, and of the rounds after the last (5): none that an honest turn will see again.
    assert [int(batch.indices[0]) for batch in request.batches] == [1, 6, 11, 16]


def test_the_layout_in_use_has_a_last_bias() -> None:
    assert LAYOUT.slots[-1].name.endswith("bias")


def test_who_overfits_climbs_on_its_own_samples_and_descends_on_those_of_others() -> None:
    """Two steps up on 7, 8, 9, then three down on 20 … 39, each on from where the last ended."""

    def scheme(node: Node) -> Protocol:
        model = yield Train(torch.zeros(1), (Batch(np.arange(3)),), 0.5, lambda: 1)
        yield Send((1,), 1, model)

    options: dict[str, object] = {
        "effort": 3,
        "boost": 4.0,
        "unlearn": 2,
        "scale": 0.0,
        "coordinate": -1,
    }
    known = {"received": np.arange(20, 40), "private": np.arange(7, 10)}
    adversary = byzantine(scheme, ATTACKS["overfit-shared"], options, **known)
    climb = next(adversary)
    assert isinstance(climb, Train)
    assert climb.rate == -2.0
    assert [sorted(batch.indices.tolist()) for batch in climb.batches] == [[7, 8, 9]] * 2
    descend = adversary.send(torch.ones(1))
    assert isinstance(descend, Train)
    assert descend.rate == 2.0
    assert isinstance(descend.model, Tensor)
    assert torch.equal(descend.model, torch.ones(1))
    assert [len(batch) for batch in descend.batches] == [3] * 3
    assert {int(i) for batch in descend.batches for i in batch.indices} <= set(range(20, 40))
    sent = adversary.send(torch.full((1,), 5.0))
    assert isinstance(sent, Send)
    assert isinstance(sent.body, Tensor)
    assert torch.equal(sent.body, torch.full((1,), 5.0))
    empty = byzantine(scheme, ATTACKS["overfit-shared"], options)  # it was away: honest work
    honest = next(empty)
    assert isinstance(honest, Train)
    assert honest.rate == 0.5
