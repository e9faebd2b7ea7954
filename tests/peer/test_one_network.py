"""One network of one's own, in a file: the same bits in every command and on real peers."""

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import basil
from basil import foreign
from basil.cli import main
from basil.experiment import Machine, set_up
from basil.learning.models import LOSSES, MODELS
from basil.many.worker import run_away
from basil.peer.run.merge import merge
from basil.recipe import code_of, parse, to_toml, to_tree

from nursery import Ring

RECIPE: dict[str, Any] = {
    "seed": 4,
    "ring": {"nodes": 8, "byzantine": 2, "connectivity": 3},
    "scheme": {"rounds": 3},
    "learning": {
        "model": "net.py:Net",
        "width": 3,
        "loss": "net.py:smoothed",
        "batch": 16,
        "rate": 0.1,
    },
    "attack": {"name": "gaussian"},
    "record": {"every": 3},
}
NET = """
from torch import nn

from sizes import KERNEL


class Net(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        first = nn.Conv2d(1, width, KERNEL, padding=KERNEL // 2)
        self.body = nn.Sequential(first, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.head = nn.Linear(16 * width, 10)

    def forward(self, x):
        return self.head(self.body(x))


class Branching(Net):
    def forward(self, x):
        return super().forward(x if x.mean() > 9 else -x)


def smoothed(outputs, targets, *, smoothing: float = 0.1):
    loss = nn.functional.cross_entropy
    return loss(outputs, targets, reduction="none", label_smoothing=smoothing)


def telling(outputs, targets):
    import torch
    from pathlib import Path

    many = torch.full((1_000_000,), 1e-20)  # so many that all threads take part
    kept = int(many.square().view(torch.int32).count_nonzero())
    Path(__file__).with_name("subnormals").write_text(f"{kept} kept")
    return nn.functional.cross_entropy(outputs, targets, reduction="none")
"""
pytestmark = pytest.mark.slow


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files, in which nobody has worked before."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(foreign, "_folders", [])
    for table in (MODELS, LOSSES):
        monkeypatch.setattr(table, "_foreign", {})
    monkeypatch.delitem(sys.modules, "sizes", raising=False)
    monkeypatch.chdir(tmp_path)
    lay(tmp_path)
    Path("mine.toml").write_text(to_toml(parse(RECIPE)))
    return tmp_path


def lay(folder: Path, kernel: int = 3) -> None:
    (folder / "net.py").write_text(NET)
    (folder / "sizes.py").write_text(f"KERNEL = {kernel}\n")


def swept(folder: Path) -> set[str]:
    lines = (folder / "sweep.csv").read_text().splitlines()
    return {row["model_sha256"] for row in csv.DictReader(lines)}


def test_run_compare_sweep_and_eight_nodes_end_with_the_same_model(
    here: Path, ring_of: Callable[..., Ring]
) -> None:
    model = basil.run(RECIPE, out="run").summary["model_sha256"]
    words = ["--schemes", "basil", "--attacks", "gaussian", "--no-report", "--jobs", "1"]
    assert main(["compare", "mine.toml", *words, "--out", "compared"]) == 0
    [path] = (here / "compared").glob("*/summary.json")
    assert json.loads(path.read_text())["model_sha256"] == model

    recipe = parse(RECIPE)  # as Ray would have it done
    (away, _), _ = run_away((to_tree(recipe), code_of(recipe)), Machine())
    assert away is not None
    assert away["model_sha256"] == model

    plan = '\n[sweep]\n[sweep.grid]\n"attack.name" = ["gaussian", "none"]\n'
    Path("sweep.toml").write_text(Path("mine.toml").read_text() + plan)
    assert main(["sweep", "sweep.toml", "--jobs", "1", "--out", "swept"]) == 0
    assert model in swept(here / "swept")

    byzantine = set_up(parse(RECIPE)).participants.byzantine
    ring = ring_of(RECIPE)
    for i in range(ring.nodes):
        lay(ring.node(i))
        lies = ["--attack", "gaussian"] * (i in byzantine)
        ring.start(i, "--twin", "--patience", "60", *lies)
    assert set(ring.wait(seconds=120).values()) == {0}, ring.story(range(ring.nodes))
    merged = merge(ring.folder, here / "merged").summary
    assert merged is not None
    assert merged["model_sha256"] == model


def test_a_sweep_on_ray_ends_with_the_same_model(here: Path) -> None:
    pytest.importorskip("ray")
    model = basil.run(RECIPE, out="run").summary["model_sha256"]
    rows = basil.sweep(RECIPE, grid={"attack.name": ["gaussian"]}, seeds=[4, 5], ray=True, out="s")
    assert [row["error"] for row in rows] == ["", ""]
    assert rows[0]["model_sha256"] == model != rows[1]["model_sha256"]


def test_peers_refuse_another_layout_of_the_same_source(
    here: Path, ring_of: Callable[..., Ring]
) -> None:
    """What net.py imports is no part of its digest; the shapes that it leads to are agreed on."""
    ring = ring_of({**RECIPE, "ring": {"nodes": 4, "byzantine": 1, "connectivity": 2}})
    for i in range(ring.nodes):
        lay(ring.node(i), kernel=5 if i == 2 else 3)
    ring.start_all()
    codes = ring.wait()
    assert codes[2] == 2
    assert "does not agree with nodes 0, 1, 3" in ring.log(2)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_nobody_can_slow_peers_down_by_subnormal_weights(
    here: Path, ring_of: Callable[..., Ring], threads: str
) -> None:
    learning = {"model": "net.py:Net", "loss": "net.py:telling"}
    small = {"nodes": 3, "byzantine": 0, "connectivity": 2}
    ring = ring_of({"ring": small, "scheme": {"rounds": 1}, "learning": learning})
    for i in range(ring.nodes):
        lay(ring.node(i))
    ring.start_all("--threads", threads)
    assert set(ring.wait().values()) == {0}
    for i in range(ring.nodes):
        assert (ring.node(i) / "subnormals").read_text() == "0 kept"


def test_peers_say_that_symmetries_are_not_known(here: Path, ring_of: Callable[..., Ring]) -> None:
    small = {"nodes": 3, "byzantine": 0, "connectivity": 2}
    learning = {"model": "net.py:Branching"}
    ring = ring_of({"ring": small, "scheme": {"rounds": 1}, "learning": learning})
    for i in range(ring.nodes):
        lay(ring.node(i))
    ring.start_all()
    assert set(ring.wait().values()) == {0}
    assert "of the symmetries of this network none are known" in ring.log(0)
