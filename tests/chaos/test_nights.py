"""A ring of real peer code through ruined nights, in a simulated world (`make chaos` runs more)."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import basil
from chaos.night import NODES, ROUNDS, Outcome, night, recipe
from chaos.planted import ROOT, faults, planted
from chaos.run import shrunk


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


def test_a_night_is_the_same_in_another_process() -> None:
    """Keys and names are, too: Byzantine nodes flip bits of them."""
    command = (
        "from chaos.night import night; found = night(54); print(found.messages, found.seconds)"
    )
    where = os.pathsep.join(str(ROOT / name) for name in ("src", "tests"))
    other = subprocess.run(
        [sys.executable, "-c", command],
        env={**os.environ, "PYTHONPATH": where},
        capture_output=True,
        text=True,
        check=True,
    )
    here = night(54)
    assert other.stdout == f"{here.messages} {here.seconds}\n"


@pytest.mark.parametrize("tens", range(10))
def test_nothing_is_violated_in_a_hundred_nights(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        found = night(seed)
        assert found.violations == [], f"again: {found.replay}"


@pytest.mark.parametrize("seed", [11100, 52955, 66150, 69432])
def test_what_other_nights_found_is_mended(seed: int) -> None:
    assert night(seed).violations == []


def test_a_night_is_shrunk_to_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_kills_matter(seed: int, without: frozenset[str] = frozenset()) -> Outcome:
        events = ["lost", "kill 0", "part 1", "kill 2"]
        bad = {"kill 0", "kill 2"} - without
        return Outcome(seed, without, ["bad"] if len(bad) == 2 else [], events)

    monkeypatch.setattr("chaos.run.night", only_kills_matter)
    least = shrunk(only_kills_matter(7))
    assert least.replay == 'make chaos SEED=7 WITHOUT="lost,part 1"'


def test_a_night_can_be_had_without_its_faults() -> None:
    whole = night(3)
    none = night(3, without=frozenset(whole.events))
    assert whole.faults > 0
    assert none.faults == 0
    assert none.violations == []


@pytest.mark.parametrize(("path", "what", "old", "new"), list(faults()))
def test_planted_faults_fit_the_code(path: str, what: str, old: str, new: str) -> None:
    assert planted(path, old, new) != (ROOT / "src/basil" / path).read_text(encoding="utf-8"), what
