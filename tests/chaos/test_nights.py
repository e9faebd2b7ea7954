"""A ring of real peer code through ruined nights, in a simulated world (`make chaos` runs more)."""

import tomllib
from pathlib import Path

import pytest

import basil
from chaos.night import NODES, ROUNDS, night, recipe


def test_a_quiet_night_equals_the_simulator_bit_for_bit(tmp_path: Path) -> None:
    found = night(0, quiet=True)
    assert found.violations == []
    assert found.rounds == dict.fromkeys(range(NODES), ROUNDS)
    expected = basil.run(tomllib.loads(recipe()), out=tmp_path / "run").summary["model_sha256"]
    assert found.model == expected


def test_a_night_is_the_same_again() -> None:
    one, again = night(14), night(14)
    assert one == again
    assert one.faults > 0


@pytest.mark.parametrize("seed", range(1, 21))
def test_nothing_is_violated(seed: int) -> None:
    found = night(seed)
    assert found.violations == [], f"again: {found.replay}"
