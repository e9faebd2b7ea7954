"""A network and a loss in a file: their options, the same weights for everybody, and sentences."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import basil
from basil import foreign, register, testing
from basil.cli import main
from basil.experiment import set_up
from basil.learning.models import LOSSES, MODELS
from basil.recipe import Recipe, code_of, fingerprint, load, parse, to_toml

from other_package import block

RECIPE: dict[str, Any] = {
    "seed": 4,
    "ring": {"nodes": 4, "byzantine": 1, "connectivity": 2},
    "scheme": {"rounds": 2},
    "learning": {"model": "net.py:Net", "width": 3, "batch": 8},
    "record": {"test_samples": 50},
}
NET = block("from torch import Tensor, nn")
ODD = """
import numpy as np
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width: int = 2, inner=nn.Identity, *, deep: bool = False) -> None:
        super().__init__()
        first, last = nn.Linear(64, width), nn.Linear(width, 10)
        self.layers = nn.Sequential(nn.Flatten(), first, inner(), last)

    def forward(self, x):
        return self.layers(x)

class Passed(Net):
    def __init__(self, *args, **more) -> None:
        super().__init__(3)
        self.given = args

class Drawn(Net):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(np.random.rand(1), dtype=torch.float32))

class Seeded(Net):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(5))

class Rate(Net):
    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()

class Needs(Net):
    def __init__(self, width) -> None:
        super().__init__()

class Branching(Net):
    def forward(self, x):
        return self.layers(x if x.mean() > 9 else -x)

def nothing():
    return None

def mean(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)

made = Net()
"""


@pytest.fixture(autouse=True)
def _study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(foreign, "_folders", [])
    for table in (MODELS, LOSSES):
        monkeypatch.setattr(table, "_foreign", {})
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    Path("odd.py").write_text(ODD)
    yield
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in (getattr(module, "__file__", None) or ""):
            del sys.modules[name]


def named(model: str, **options: Any) -> Recipe:
    return parse({**RECIPE, "learning": {"model": model, "batch": 8, **options}})


def test_arguments_that_a_recipe_can_say_are_options() -> None:
    assert MODELS.options("odd.py:Net") == {"width": 2, "deep": False}
    assert MODELS.summary("net.py:Net") == "One convolution, for digits."
    assert set_up(named("odd.py:Net", width=7)).compute.layout.slots[0].shape == (7, 64)
    assert set_up(named("odd.py:Passed")).compute.network.given == ((1, 8, 8), 10)
    assert list(code_of(named("odd.py:Net"))) == ["model odd.py:Net"]


def test_everybody_starts_from_the_weights_that_the_seed_says() -> None:
    torch.manual_seed(1)
    one = set_up(named("odd.py:Seeded")).compute.initial
    torch.manual_seed(2)
    again = set_up(named("odd.py:Seeded")).compute.initial
    other = set_up(parse({**RECIPE, "seed": 5, "learning": {"model": "odd.py:Seeded"}}))
    assert torch.equal(one, again)
    assert not torch.equal(one, other.compute.initial)


@pytest.mark.parametrize(
    ("learning", "sentence"),
    [
        ({"model": "odd.py:made"}, "model 'odd.py:made': it is a network; name its class"),
        ({"model": "odd.py:Drawn"}, "made twice, it has other weights"),
        ({"model": "odd.py:Rate"}, "option 'rate' has the name of a key: rename it"),
        ({"model": "odd.py:Needs"}, "it must be a function (shape, classes, *, options"),
        ({"model": "odd.py:nothing"}, "it makes None, no nn.Module"),
        ({"loss": "odd.py:mean"}, "it must return one number for each sample"),
        ({"loss": "crossentropy"}, "did you mean 'cross-entropy'?"),
        ({"loss": "squares", "smoothing": 0.1}, "unknown key 'smoothing'"),
    ],
)
def test_what_is_wrong_is_one_sentence(learning: dict[str, Any], sentence: str) -> None:
    with pytest.raises(basil.UserError) as error:
        set_up(parse({**RECIPE, "learning": learning}))
    assert sentence in str(error.value)


def test_a_loss_is_named_like_a_network(tmp_path: Path) -> None:
    """The same as the function from Python; cross-entropy is what it is without a name."""

    def by_hand(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy
        return loss(outputs, targets, reduction="none", label_smoothing=0.3)

    def model(name: str, **more: Any) -> str:
        return str(basil.run(RECIPE, out=tmp_path / name, **more).summary["model_sha256"])

    plain = model("plain")
    assert model("said", set={"learning.loss": "cross-entropy"}) == plain
    smoothed = {"learning.loss": "net.py:smoothed", "learning.smoothing": 0.3}
    assert model("smoothed", set=smoothed) == model("by hand", loss=by_hand) != plain
    assert list(code_of(load(RECIPE, smoothed))) == ["model net.py:Net", "loss net.py:smoothed"]
    assert fingerprint(load(RECIPE, smoothed)) != fingerprint(load(RECIPE))


def test_the_checks_know_them() -> None:
    testing.check_loss("net.py:smoothed", smoothing=0.2)
    with pytest.raises(basil.UserError, match="one number for each sample"):
        testing.check_loss("odd.py:mean")


@pytest.mark.slow
def test_the_python_of_the_document_runs() -> None:
    names: dict[str, Any] = {}
    exec(block("import basil\n\nmine"), names)
    result, basils, rows = names["result"], names["results"][-1], names["rows"]
    assert names["results"][0].summary["attack"] == "none"
    assert basils.summary["model_sha256"] == result.summary["model_sha256"]
    assert rows[0]["model_sha256"] == result.summary["model_sha256"] != rows[1]["model_sha256"]
    assert names["page"].exists()


def test_a_class_that_is_registered_stays_a_class() -> None:
    @register.model("small-net")
    class Small(nn.Sequential):
        def __init__(self, *, hidden: int = 3) -> None:
            super().__init__(nn.Flatten(), nn.Linear(64, hidden), nn.Linear(hidden, 10))

    assert isinstance(Small(), nn.Module)
    assert set_up(named("small-net", hidden=5)).compute.layout.slots[0].shape == (5, 64)


def test_who_runs_a_network_that_cannot_be_looked_into_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe = named("odd.py:Branching")
    Path("mine.toml").write_text(to_toml(recipe))
    assert main(["run", "mine.toml", "--out", "open"]) == 0
    assert "of the symmetries of this network none are known" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="none are known"):
        basil.run(recipe, out="called")
    for guarded in ("scheme.descent=true", "scheme.canonical=false"):
        assert main(["run", "mine.toml", "-s", guarded, "--out", guarded]) == 0
        assert "symmetries" not in capsys.readouterr().err
