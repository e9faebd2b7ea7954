"""Byzantine nodes in rows: as long as asked for, apart, anywhere."""

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from basil.experiment.participants import choose_byzantine
from basil.recipe import parse
from basil.topology import Ring, agree_on_order, in_rows


def rows_on(size: int, marked: set[int]) -> list[int]:
    """How long the rows of marked places are, once around from a place that is not marked."""
    start = next(place for place in range(size) if place not in marked)
    around = [(start + step) % size in marked for step in range(size)]
    return [len(list(group)) for lies, group in groupby(around) if lies]


@given(count=st.integers(1, 40), row=st.integers(1, 12), seed=st.integers(0, 10**6), data=st.data())
def test_rows_are_of_one_length_but_for_the_rest(
    count: int, row: int, seed: int, data: st.DataObject
) -> None:
    full, rest = divmod(count, row)
    wanted = [row] * full + [rest] * (rest > 0)
    size = count + data.draw(st.integers(len(wanted), len(wanted) + 30))
    found = in_rows(size, count, row, np.random.default_rng(seed))
    assert len(set(found)) == count
    assert all(0 <= place < size for place in found)
    assert sorted(rows_on(size, set(found))) == sorted(wanted)


def test_every_arrangement_comes_up() -> None:
    """Six places, two rows of one: fifteen pairs, less the six of neighbours."""
    found = {frozenset(in_rows(6, 2, 1, np.random.default_rng(seed))) for seed in range(300)}
    apart = {frozenset({a, b}) for a in range(6) for b in range(a) if (a - b) % 6 not in (1, 5)}
    assert found == apart
    assert len(apart) == 9


def test_rows_of_a_recipe_are_one_shorter_than_the_memory() -> None:
    ring = {"nodes": 30, "byzantine": 9, "connectivity": 6, "placement": "rows"}
    for seed in range(20):
        recipe = parse({"seed": seed, "ring": ring, "attack": {"name": "gaussian"}})
        order = Ring(agree_on_order(range(30), seed))
        byzantine = choose_byzantine(recipe, order)
        assert sorted(rows_on(30, {order.position[node] for node in byzantine})) == [4, 5]
        benign = [node for node in range(30) if node not in byzantine]
        assert all(set(order.behind(node, 6)) - byzantine for node in benign)
    nobody = parse({"ring": {"placement": "rows"}, "attack": {"name": "gaussian"}})
    assert choose_byzantine(nobody, Ring(range(20))) == frozenset()
