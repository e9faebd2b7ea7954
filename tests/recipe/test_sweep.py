"""Which runs a sweep consists of."""

from pathlib import Path

import pytest

from basil.errors import UserError
from basil.recipe.sweep_plan import load_sweep

GRID = """
[ring]
nodes = 6

[sweep]
seeds = [4, 5]

[sweep.grid]
ring.connectivity = [1, 2, 9]
"attack.name" = ["none", "gaussian"]
"""
RANDOM = """
[sweep]
recipe = "demo"
draws = 40

[sweep.random]
learning.rate = { low = 0.001, high = 1.0, log = true }
learning.decay = { low = 0.0, high = 2.0 }
scheme.rounds = { low = 3, high = 6 }
attack.name = ["gaussian", "sign-flip"]
"""


@pytest.fixture
def points(tmp_path: Path):
    def read(text: str, *overrides: str):
        (tmp_path / "sweep.toml").write_text(text)
        return load_sweep(str(tmp_path / "sweep.toml"), list(overrides))

    return read


def test_a_grid_has_every_combination_with_every_seed(points):
    found = points(GRID)
    assert len(found) == 3 * 2 * 2
    assert found[0].varied == {"ring.connectivity": 1, "attack.name": "none"}
    assert [p.seed for p in found[:4]] == [4, 5, 4, 5]
    for point in found:
        if point.recipe is not None:
            assert point.recipe.seed == point.seed
            assert point.recipe.connectivity == point.varied["ring.connectivity"]
            assert point.recipe.attack.name == point.varied["attack.name"]


def test_what_no_ring_can_be_is_a_point_with_a_sentence(points):
    """S = 9 on a ring of 6: the others run all the same."""
    faulty = [p for p in points(GRID) if p.recipe is None]
    assert {p.varied["ring.connectivity"] for p in faulty} == {9}
    assert len(faulty) == 4
    assert all("a ring of 6 nodes has only 5 predecessors" in p.fault for p in faulty)


def test_draws_lie_in_their_ranges_and_spread_over_them(points):
    found = points(RANDOM)
    assert len(found) == 40
    rates = sorted(p.varied["learning.rate"] for p in found)
    assert rates[0] >= 0.001
    assert rates[-1] <= 1
    # Uniform in the logarithm: about half lie below the geometric mean, 0.032; 12 to 28 of 40 have
    # a probability of 0.993.
    assert 12 <= sum(rate < 0.0316 for rate in rates) <= 28
    assert {p.varied["scheme.rounds"] for p in found} == {3, 4, 5, 6}
    assert {p.varied["attack.name"] for p in found} == {"gaussian", "sign-flip"}
    assert all(0 <= p.varied["learning.decay"] <= 2 for p in found)
    assert all(p.recipe is not None and p.recipe.ring.nodes == 20 for p in found)


def test_more_draws_or_another_key_leave_the_draws_as_they_were(points):
    first = points(RANDOM)
    more = points(RANDOM.replace("draws = 40", "draws = 41"))
    assert [p.varied for p in more[:40]] == [p.varied for p in first]
    fewer = points(RANDOM.replace('attack.name = ["gaussian", "sign-flip"]\n', ""))
    for without, whole in zip(fewer, first, strict=True):
        assert without.varied.items() < whole.varied.items()
    other = points(RANDOM.replace("draws = 40", "draws = 40\ndraw_seed = 1"))
    assert [p.varied for p in other] != [p.varied for p in first]


def test_overrides_hold_for_every_run(points):
    assert {p.recipe.scheme.rounds for p in points(GRID, "scheme.rounds=2") if p.recipe} == {2}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[ring]\nnodes = 5", "describes no sweep: it has no section [sweep]"),
        ("[sweep]\nseed = [1]", "unknown key 'seed': did you mean 'seeds'?"),
        ("[sweep]\nseeds = [1]", "nothing is varied"),
        ("[sweep]\ndraws = 3", "draws = 3: it goes with keys under [sweep.random]"),
        ('[sweep]\nrecipe = "demo"\n[sweep.grid]\nring.nodes = 3', "it must be a list of values"),
        ("[sweep.grid]\nring.nods = [3, 4]", "unknown key 'nods': did you mean 'nodes'?"),
        ('[ring]\n[sweep]\nrecipe = "demo"', "then leave [ring] out"),
        (
            "[sweep]\ndraws = 1\n[sweep.random]\nlearning.rate = { low = 0, high = 1, log = true }",
            "low must be less, and above 0 where log",
        ),
        (
            "[sweep]\ndraws = 1\n[sweep.random]\nlearning.rate = { low = 1, high = 0.5 }",
            "low must be less",
        ),
    ],
)
def test_a_mistake_is_said_in_one_sentence(points, text, sentence):
    with pytest.raises(UserError) as error:
        points(text)
    assert sentence in str(error.value)
