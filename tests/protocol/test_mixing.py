"""Pre-aggregations: by hand, against byzfl's, and in front of every scheme on a graph."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from basil.experiment import Simulation, set_up
from basil.protocol.graph.graph_round import RoundInput
from basil.protocol.graph.mixing import (
    MIXINGS,
    adaptively_clipped,
    bucket_means,
    nearest_means,
)
from basil.protocol.requests import Combine
from basil.protocol.schemes import GRAPH_SCHEMES
from basil.recipe import parse

from aggregation_helpers import same, stacks
from ring_helpers import Quadratic, plain_node

LINE = torch.tensor([[1.0], [2.0], [3.0], [10.0], [-20.0]])  # neighbours of a node at 0


def test_nearest_neighbour_mixing_by_hand() -> None:
    """Of 0, 1, 2, 3, 10, −20 the four nearest to 10 are 10, 3, 2, 1; to −20: −20, 0, 1, 2."""
    mixed = nearest_means(torch.zeros(1), LINE, 4)
    assert same(mixed[:, 0], [1.5, 1.5, 1.5, 1.5, 4.0, -4.25])


def test_adaptive_clipping_by_hand() -> None:
    """m = 5, b = 1: ⌊2·1·4/5⌋ = 1 is cut down, −20 to the length of 10; b = 2: two, to 3."""
    assert same(adaptively_clipped(torch.zeros(1), LINE, 1)[:, 0], [1.0, 2.0, 3.0, 10.0, -10.0])
    assert same(adaptively_clipped(torch.zeros(1), LINE, 2)[:, 0], [1.0, 2.0, 3.0, 3.0, -3.0])


def test_buckets_by_hand() -> None:
    means = bucket_means(torch.zeros(1), LINE, [[0, 3], [1, 2], [4]])
    assert same(means[:, 0], [5.5, 2.5, -20.0])


@settings(max_examples=40, deadline=None)
@given(stack=stacks(least=2), data=st.data())
def test_byzfl_agrees(byzfl: Any, stack: tuple[Tensor, Tensor], data: st.DataObject) -> None:
    own, models = stack
    f = data.draw(st.integers(0, (len(models) - 1) // 2))
    everybody = torch.cat([own[None], models])
    mixed = nearest_means(own, models, len(everybody) - f)
    assert torch.allclose(mixed, byzfl.NNM(f=f)(everybody.clone()), atol=1e-5)
    clipped = byzfl.ARC(f=f)((models - own).clone())
    assert torch.allclose(adaptively_clipped(own, models, f) - own, clipped, atol=1e-5)


def heard(mixing: str, b: int = 1, **options: Any) -> tuple[RoundInput, RoundInput]:
    """Before and after, of node 0 among six in a complete graph."""
    weights = {j: 0.05 * j for j in range(1, 6)}
    compute = Quadratic((0.0,) * 6, x0=0.0).compute()
    node = plain_node(0, compute, neighbours=tuple(weights), weights=weights, byzantine=b)
    before = RoundInput(node, 3, torch.zeros(1), (1, 2, 3, 4, 5), tuple(LINE), ())
    steps = MIXINGS[mixing](node, **options)(before)
    try:
        request = next(steps)
        assert isinstance(request, Combine)
        steps.send(request.work(*request.args))
    except StopIteration as end:
        return before, end.value
    raise AssertionError("it asks for more than one thing")


def test_a_bucket_counts_as_one_neighbour_with_the_weight_of_all_in_it() -> None:
    before, after = heard("bucketing", bucket=2)
    assert sorted(j for group in after.groups for j in group) == [1, 2, 3, 4, 5]
    assert [len(group) for group in after.groups] == [2, 2, 1]
    assert after.senders == tuple(group[0] for group in after.groups)
    given = dict(zip(before.senders, before.weights.tolist(), strict=True))
    expected = [sum(given[j] for j in group) for group in after.groups]
    assert same(after.weights, expected)
    for group, body in zip(after.groups, after.bodies, strict=True):
        assert same(body, [sum(float(LINE[j - 1]) for j in group) / len(group)])
    assert heard("bucketing", bucket=2)[1].groups == after.groups  # named randomness


def test_of_six_models_with_a_lie_the_nearest_five_are_mixed() -> None:
    """0, 1, 2, 3, 10, −20: the mean of 0 … 10 for all but −20, for which it is that without 10."""
    mixed = torch.cat(heard("nnm")[1].bodies)
    assert same(mixed, [16 / 5] * 4 + [-14 / 5])


@pytest.mark.parametrize("mixing", ["none", "nnm", "arc"])
def test_the_others_leave_senders_and_weights_alone(mixing: str) -> None:
    before, after = heard(mixing)
    assert after.senders == before.senders
    assert torch.equal(after.weights, before.weights)
    assert after.own is before.own
    assert (after.bodies == before.bodies) is (mixing == "none")


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("scheme", GRAPH_SCHEMES)
def test_every_scheme_on_a_graph_takes_every_mixing(
    scheme: str, mixing: str, tmp_path: Path
) -> None:
    recipe = parse(
        {
            "ring": {"nodes": 8, "byzantine": 2},
            "graph": {"p": 0.8, "mixing": mixing},
            "scheme": {"name": scheme, "rounds": 3},
            "learning": {"model": "softmax", "batch": 16, "rate": 0.1},
            "attack": {"name": "garbage" if mixing != "none" else "gaussian"},
            "record": {"every": 3},
        }
    )
    summary = Simulation(set_up(recipe)).run(tmp_path / "run")
    if scheme != "g-plain":
        assert summary["loss"]["worst"] is not None


def test_no_bucket_is_empty() -> None:
    with pytest.raises(Exception, match=r"graph.bucket = 0: it must be 1 or more"):
        set_up(parse({"scheme": {"name": "nna"}, "graph": {"mixing": "bucketing", "bucket": 0}}))
