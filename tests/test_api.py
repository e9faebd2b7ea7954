"""`import basil`: the public names, and one's own network, loss and data on the ring."""

import copy
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import basil
from basil.experiment import Custom, Hooks, Interrupted, Simulation, set_up
from basil.recipe import parse


@pytest.mark.parametrize("name", ["run", "resume", "compare", "sweep", "report", "plan"])
def test_what_the_commands_do_is_a_function(name: str) -> None:
    assert inspect.isfunction(getattr(basil, name))


def test_public_names() -> None:
    """What users may rely on; a change here is a change for them."""
    assert sorted(basil.__all__) == [
        "Attack",
        "Candidates",
        "Choice",
        "DataAttack",
        "Dataset",
        "Graph",
        "Node",
        "Population",
        "Result",
        "Samples",
        "UserError",
        "View",
        "compare",
        "declares",
        "from_samples",
        "load_models",
        "plan",
        "register",
        "report",
        "requests",
        "resume",
        "run",
        "sweep",
        "testing",
        "theory",
    ]
    assert all(hasattr(basil, name) for name in basil.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        basil.nonsense  # noqa: B018


def stripes(n: int, seed: int) -> basil.Samples:
    """4×4 pictures: class 0 has a bright row, class 1 a bright column."""
    stream = np.random.default_rng(seed)
    x = stream.integers(0, 60, (n, 1, 4, 4), dtype=np.uint8)
    y = np.arange(n) % 2
    for i, place in enumerate(stream.integers(0, 4, n)):
        if y[i]:
            x[i, 0, :, place] = 250
        else:
            x[i, 0, place, :] = 250
    return basil.Samples(x, y)


def dataset() -> basil.Dataset:
    return basil.Dataset(
        "stripes", stripes(400, 0), stripes(100, 1), 2, ("row", "column"), (60.0,), (80.0,)
    )


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(72, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.body(x)))


def smoothed(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)


RECIPE: dict[str, Any] = {
    "ring": {"nodes": 6, "byzantine": 2},
    "scheme": {"rounds": 8},
    "learning": {"batch": 16, "rate": 0.3, "local_steps": 2},
    "attack": {"name": "gaussian"},
}


def net() -> nn.Module:
    torch.manual_seed(4)
    return Net()


def test_own_network_loss_and_data(tmp_path: Path) -> None:
    mine = net()
    before = copy.deepcopy(mine.state_dict())
    result = basil.run(RECIPE, model=mine, loss=smoothed, dataset=dataset(), out=tmp_path / "mine")
    after = mine.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)  # it was copied
    assert result.summary["dataset"] == "stripes"
    assert result.summary["accuracy"]["worst"] > 0.9  # two of six lie, and stripes are easy
    # A saved model is the one that was measured.
    states = result.models()
    assert len(states) == 4
    accuracies = []
    test = dataset().test
    x = torch.from_numpy((test.x.astype(np.float32) - 60) / 80)
    for state in states.values():
        network = Net()
        missing, unexpected = network.load_state_dict(state, strict=False)
        assert not unexpected
        assert [name for name in missing if not name.endswith("num_batches_tracked")] == []
        network.eval()
        with torch.no_grad():
            right = network(x).argmax(1) == torch.from_numpy(test.y)
        accuracies.append(float(right.float().mean()))
    assert min(accuracies) == pytest.approx(result.summary["accuracy"]["worst"])
    assert np.mean(accuracies) == pytest.approx(result.summary["accuracy"]["mean"])


def test_own_network_resumes_only_with_itself(tmp_path: Path) -> None:
    """Dropout and BatchNorm included: the same bits as without the interruption."""
    own: dict[str, Any] = {"loss": smoothed, "dataset": dataset()}
    whole = basil.run(RECIPE, model=net(), out=tmp_path / "whole", **own)
    turns = iter(range(20))
    with pytest.raises(Interrupted):
        Simulation(set_up(parse(RECIPE), Custom(model=net(), **own))).run(
            tmp_path / "part", Hooks(stop=lambda: next(turns, None) is None)
        )
    with pytest.raises(basil.UserError, match="another model"):
        basil.resume(tmp_path / "part", model=nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), **own)
    rest = basil.resume(tmp_path / "part", model=net(), **own)
    assert rest.summary["model_sha256"] == whole.summary["model_sha256"]


def test_help_does_not_wait_for_pytorch() -> None:
    import subprocess
    import sys

    code = "import sys, basil.cli; basil.cli.parser(); print('torch' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"


def test_a_network_that_is_not_understood_is_said(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.flatten(1)
            return self.linear(x) if x.sum() > 0 else self.linear(x) * 1.0

    tree = {"ring": {"nodes": 3}, "scheme": {"rounds": 1}}
    with pytest.warns(UserWarning, match="of the symmetries of this network none are known"):
        basil.run(tree, out=tmp_path / "odd", model=Odd())


SMALL: dict[str, Any] = {
    "like": "demo",
    "ring": {"nodes": 5, "byzantine": 1, "connectivity": 2},
    "learning": {"model": "softmax"},
    "record": {"test_samples": 50},
}


def test_dir_shows_what_there_is() -> None:
    assert set(basil.__all__) < set(dir(basil))
    setting = basil.theory.Setting(nodes=100, byzantine=33, failure=1e-3)
    assert basil.theory.make_plan(setting).ring.connectivity == 10


def test_a_dict_may_be_like_a_recipe_and_set_changes_it(tmp_path: Path) -> None:
    changes = {"scheme.rounds": 2, "attack": {"name": "sign-flip"}}
    given = copy.deepcopy((SMALL, changes))
    summary = basil.run(SMALL, set=changes, out=tmp_path / "dict").summary
    assert (SMALL, changes) == given
    assert (summary["rounds"], summary["nodes"], summary["attack"]) == (2, 5, "sign-flip")
    assert summary["dataset"] == "digits"  # the demo's
    more = {"ring": SMALL["ring"], "learning.model": "softmax", "record.test_samples": 50}
    by_name = basil.run("demo", set={**more, **changes}, out=tmp_path / "name").summary
    assert by_name["model_sha256"] == summary["model_sha256"]
    recipe = parse({"ring": {"nodes": 3}})
    assert basil.run(recipe, set={"scheme.rounds": 1}, out=tmp_path / "r").summary["rounds"] == 1


@pytest.mark.parametrize(
    ("recipe", "changes", "sentence"),
    [
        ({"like": "dmo"}, {}, "the nearest names are 'demo'"),
        ({"like": 3}, {}, "like = 3: it must be a string"),
        ("demo", {"ring.nods": 3}, "did you mean 'nodes'? (demo.toml with set, [ring])"),
        (SMALL, {"seed.x": 3}, "seed is not a section"),
        (SMALL, {"scheme.rounds": "many"}, "it must be a whole number (recipe with set, [scheme])"),
    ],
)
def test_a_wrong_recipe_is_one_sentence(
    recipe: Any, changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(basil.UserError) as error:
        basil.run(recipe, set=changes, out=tmp_path / "none")
    assert sentence in str(error.value)


def test_a_plan_is_of_what_is_asked_or_of_a_recipe() -> None:
    assert basil.plan(nodes=100, byzantine=33, failure=1e-3).ring.connectivity == 10
    plan = basil.plan(SMALL, set={"ring.nodes": 8, "learning.local_steps": 3})
    setting = plan.setting
    assert (setting.nodes, setting.byzantine, setting.connectivity) == (8, 1, 2)
    assert setting.parameters == 64 * 10 + 10  # softmax on digits
    assert setting.times.step == pytest.approx(3 * 0.006)  # Table III, three steps a turn
    assert basil.plan(SMALL, worst_case=True).ring.connectivity == 2
    with pytest.raises(basil.UserError, match="byzantine"):
        basil.plan(nodes=3, byzantine=5)


@pytest.mark.slow
def test_compare_sweep_and_report_do_what_the_commands_do(tmp_path: Path) -> None:
    few = {"scheme.rounds": 2}
    alone = basil.run(SMALL, set={**few, "scheme.name": "r-plain"}, out=tmp_path / "alone")
    which: dict[str, Any] = {"schemes": ["basil", "r-plain"], "attacks": ["gaussian"], "jobs": 1}
    found = basil.compare(SMALL, set=few, out=tmp_path / "all", **which)
    assert [result.summary["scheme"] for result in found] == ["basil", "r-plain"]
    assert found[1].summary["model_sha256"] == alone.summary["model_sha256"]
    assert found[1].models().keys() == alone.models().keys()
    stamp = (found[0].folder / "summary.json").stat().st_mtime_ns
    again = basil.compare(SMALL, set=few, out=tmp_path / "all", **which)
    assert (again[0].folder / "summary.json").stat().st_mtime_ns == stamp
    with pytest.raises(basil.UserError, match="holds a run with another recipe"):
        basil.compare(SMALL, set={"scheme.rounds": 3}, out=tmp_path / "all", **which)

    paths = basil.report(tmp_path / "all", against="megabytes")
    assert paths.page == tmp_path / "all" / "report.html"
    assert "R-plain" in paths.page.read_text()
    with pytest.raises(basil.UserError, match="holds no run"):
        basil.report(tmp_path / "nothing")

    grid = {"scheme.name": ["r-plain"], "ring.connectivity": (2, 9)}
    rows = basil.sweep(SMALL, grid=grid, set=few, jobs=1, out=tmp_path / "swept")
    assert rows[0]["model_sha256"] == alone.summary["model_sha256"]
    assert "has only 4 predecessors" in rows[1]["error"]
    assert (tmp_path / "swept" / "sweep.csv").exists()
