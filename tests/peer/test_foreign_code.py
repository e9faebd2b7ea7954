"""Peers whose recipe names others' code: all must have the same."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from basil import foreign
from basil.attack import ATTACKS
from basil.experiment import set_up
from basil.learning.metrics import METRICS
from basil.recipe import parse
from basil.record.read import read_run

from nursery import Ring

RECIPE: dict[str, Any] = {
    "seed": 1,
    "data": {"dataset": "synthetic", "samples": 400},
    "ring": {"nodes": 4, "byzantine": 1, "connectivity": 2},
    "scheme": {"rounds": 3},
    "learning": {"model": "softmax", "batch": 16, "rate": 0.1},
    "attack": {"name": "mine.py:upside_down"},
    "record": {"every": 2, "metrics": ["mine.py:boldness"]},
}
MINE = '''
def upside_down(view, *, factor: float = 1.0):
    """Minus the nearest model."""
    return -factor * view.honest

def boldness(outputs, targets):
    """The largest output of each sample."""
    return outputs.amax(1)
'''


@pytest.fixture
def ring(
    ring_of: Callable[..., Ring], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ring]:
    """Four nodes, each with its own copy of the file beside its roster."""
    monkeypatch.setattr(foreign, "_folders", [str(tmp_path)])
    for table in (ATTACKS, METRICS):
        monkeypatch.setattr(table, "_foreign", {})
    (tmp_path / "mine.py").write_text(MINE)
    ring = ring_of(RECIPE)
    for i in range(ring.nodes):
        (ring.node(i) / "mine.py").write_text(MINE)
    yield ring
    ring.end()


def test_a_ring_carries_out_what_a_file_says(ring: Ring) -> None:
    byzantine = set_up(parse(RECIPE)).participants.byzantine
    for i in range(ring.nodes):
        ring.start(i, *(["--attack", "mine.py:upside_down"] * (i in byzantine)))
    assert set(ring.wait().values()) == {0}, ring.story(range(ring.nodes))
    benign = next(i for i in range(ring.nodes) if i not in byzantine)
    run = read_run(ring.node(benign) / "run")
    assert list(run.facts["extensions"]) == [
        "attack mine.py:upside_down",
        "metric mine.py:boldness",
    ]
    assert all(line["boldness"]["worst"] > 0 for line in run.metrics)


@pytest.mark.slow
def test_whoever_has_another_source_does_not_agree(ring: Ring) -> None:
    (ring.node(2) / "mine.py").write_text(MINE.replace("-factor", "-2 * factor"))
    ring.start_all()
    codes = ring.wait()
    assert codes[2] == 2
    assert "does not agree with nodes 0, 1, 3" in ring.log(2)
    assert "the code it names" in ring.log(2)
