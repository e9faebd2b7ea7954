"""What every partition promises, for whatever labels; and what each promises of its own."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basil import rng
from basil.data.partition import DIRICHLET_DRAWS, PARTITIONS
from basil.errors import UserError
from basil.testing.pieces import check_deal

names = pytest.mark.parametrize("name", PARTITIONS)
by_class = pytest.mark.parametrize("name", ["sorted", "shards", "dirichlet"])


def deal(name, labels, nodes, seed=0, **options):
    return PARTITIONS[name](np.asarray(labels), nodes, rng.stream(seed, "partition"), **options)


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def classes_of(labels, parts):
    return [set(labels[part].tolist()) for part in parts]


@st.composite
def problems(draw):
    """Labels of any classes, gaps and negatives too, and few enough nodes for two shards each."""
    labels = draw(st.lists(st.integers(-2, 9), min_size=2, max_size=120))
    return np.array(labels, dtype=np.int64), draw(st.integers(1, len(labels) // 2))


@names
@given(problems(), st.integers(0, 3))
def test_every_sample_goes_to_exactly_one_node_and_no_node_goes_without(name, problem, seed):
    labels, nodes = problem
    try:
        check_deal(PARTITIONS[name], labels, nodes, seed)
    except UserError:
        assert name == "dirichlet"  # the others never depend on luck


@names
def test_another_stream_deals_otherwise(name):
    labels = np.arange(300) % 10
    assert not same(deal(name, labels, 10, seed=1), deal(name, labels, 10, seed=2))


@pytest.mark.parametrize("name", ["iid", "sorted"])
@given(problems())
def test_sizes_differ_by_one_at_most(name, problem):
    sizes = [len(part) for part in deal(name, *problem)]
    assert max(sizes) - min(sizes) <= 1


@names
@pytest.mark.parametrize(("n", "nodes"), [(5, 6), (0, 1), (5, 0), (5, -1)])
def test_impossible_numbers_of_nodes(name, n, nodes):
    with pytest.raises(UserError, match=f"nodes = {nodes}"):
        deal(name, np.zeros(n, dtype=np.int64), nodes)


@by_class
def test_real_targets_have_no_classes_to_deal_by(name):
    with pytest.raises(UserError, match=f"partition '{name}'.*regression.*'iid'"):
        deal(name, np.linspace(0, 1, 50, dtype=np.float32), 5)


def test_iid_deals_real_targets():
    parts = deal("iid", np.linspace(0, 1, 50, dtype=np.float32), 5)
    assert [len(part) for part in parts] == [10] * 5


def test_iid_mixes_the_classes():
    labels = np.repeat(np.arange(10), 600)
    shares = [np.bincount(labels[part], minlength=10) for part in deal("iid", labels, 10)]
    assert np.min(shares) > 30  # 60 expected, standard deviation 7


def test_sorted_gives_node_i_class_i_alone():
    labels = rng.stream(0, "test").permutation(np.repeat(np.arange(10), 30))
    assert classes_of(labels, deal("sorted", labels, 10)) == [{i} for i in range(10)]


def test_sorted_cuts_a_class_at_random():
    labels = np.zeros(1000, dtype=np.int64)
    first = deal("sorted", labels, 2)[0]
    assert 200 < np.count_nonzero(first < 500) < 300  # 250 expected, standard deviation 8


def test_shards_leave_few_classes_at_a_node():
    labels = np.repeat(np.arange(10), 600)
    parts = deal("shards", labels, 100)
    assert {len(part) for part in parts} == {60}
    assert max(map(len, classes_of(labels, parts))) == 2  # no shard of 30 straddles two classes
    assert len({frozenset(seen) for seen in classes_of(labels, parts)}) > 10  # dealt at random
    assert max(map(len, classes_of(labels, deal("shards", labels, 100, per_node=1)))) == 1


@pytest.mark.parametrize(
    ("per_node", "says"), [(0, "at least 1"), (4, "40 shards.*30 samples.*3 at most")]
)
def test_impossible_shards(per_node, says):
    with pytest.raises(UserError, match=f"per_node = {per_node}.*{says}"):
        deal("shards", np.zeros(30, dtype=np.int64), 10, per_node=per_node)


def test_dirichlet_goes_from_one_class_to_all_of_them_as_beta_grows():
    labels = np.arange(10_000) % 10

    def spread(beta):
        parts = deal("dirichlet", labels, 10, beta=beta)
        counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
        return (counts / 1000).std()  # of the shares of a class

    # Dir(β, ..., β) over N nodes: a share has mean 1/N and variance (1/N)(1 - 1/N)/(Nβ + 1).
    for beta in (0.2, 1.0, 100.0):
        assert spread(beta) == pytest.approx(np.sqrt(0.09 / (10 * beta + 1)), rel=0.25)


def test_dirichlet_redraws_until_every_node_has_enough():
    labels = np.arange(2000) % 10
    loose = deal("dirichlet", labels, 20, beta=0.3)
    strict = deal("dirichlet", labels, 20, beta=0.3, least=30)
    assert min(map(len, loose)) < 30 <= min(map(len, strict))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"beta": 0.0}, "beta = 0.0"),
        ({"beta": -1.0}, "beta = -1.0"),
        ({"beta": float("nan")}, "beta = nan"),
        ({"beta": float("inf")}, "beta = inf"),
        ({"least": 0}, "least = 0"),
        ({"least": 11}, "least = 11: 10 nodes would need 110 samples.*100.*10 at most"),
        ({"beta": 0.01, "least": 10}, f"beta = 0.01: in {DIRICHLET_DRAWS} draws.*larger beta"),
    ],
)
def test_impossible_dirichlet(options, says):
    with pytest.raises(UserError, match=says):
        deal("dirichlet", np.arange(100) % 10, 10, **options)


@names
def test_ten_thousand_nodes_are_dealt_in_no_time(name):
    labels = np.arange(60_000) % 10
    options = {"beta": 20.0} if name == "dirichlet" else {}
    start = time.perf_counter()
    assert len(deal(name, labels, 10_000, **options)) == 10_000
    assert time.perf_counter() - start < 2  # a loop over samples or classes x nodes takes longer
