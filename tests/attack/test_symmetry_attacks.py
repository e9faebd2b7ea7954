"""Lies that keep the function: no output changes, and a ring in canonical form holds."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from basil.attack import ATTACKS
from basil.errors import UserError
from basil.experiment import Simulation, set_up
from basil.learning.layout import layout_of
from basil.learning.models import mlp
from basil.learning.symmetry import Canonical, find
from basil.recipe import parse

from attack_helpers import view

NETWORK = mlp((20,), 5, hidden=30)
LAYOUT = layout_of(NETWORK)
X = torch.randn(50, 20, generator=torch.Generator().manual_seed(0))
HONEST = LAYOUT.flatten(NETWORK)
SYMMETRIES = find(NETWORK, LAYOUT, X)


def outputs(model: Tensor) -> Tensor:
    return functional_call(NETWORK, LAYOUT.views(model), (X,)).detach()


def lie(name: str, **options: Any) -> Any:
    seen = view(
        honest=HONEST, chosen=HONEST, layout=LAYOUT, symmetries=SYMMETRIES, k=options.pop("k", 3)
    )
    return ATTACKS[name](seen, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rescale", {"factor": 20.0}),
        ("rescale", {"factor": 3.0, "by": "units", "layer": 0}),
        ("rescale", {"factor": 0.5, "layer": -1}),
        ("permute", {}),
        ("permute", {"share": 0.2}),
    ],
)
def test_no_output_changes_and_the_weights_do(name: str, options: dict[str, Any]) -> None:
    changed = lie(name, **options)
    assert (changed - HONEST).norm() > 0.1 * HONEST.norm()
    assert torch.allclose(outputs(changed), outputs(HONEST), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("by", ["layer", "units"])
def test_the_canonical_form_undoes_a_rescaling(by: str) -> None:
    canonical = Canonical(SYMMETRIES, HONEST)
    one, other = canonical(HONEST), canonical(lie("rescale", factor=7.0, by=by))
    assert torch.allclose(one, other, rtol=2e-3, atol=1e-6)


def test_a_layer_is_scaled_as_the_formula_says() -> None:
    before, after = (LAYOUT.views(m) for m in (HONEST, lie("rescale", factor=4.0, layer=0)))
    for name, factor in {"1.weight": 4, "1.bias": 4, "3.weight": 1 / 4, "5.weight": 1}.items():
        assert torch.allclose(after[name], factor * before[name])


def test_by_units_as_many_grow_as_shrink() -> None:
    """So that the norm of a layer tells little."""
    before = LAYOUT.views(HONEST)["1.weight"]
    for share, half in ((1.0, 15), (0.5, 7)):  # of 30
        after = LAYOUT.views(lie("rescale", factor=4.0, by="units", layer=0, share=share))
        factors = (after["1.weight"] / before)[:, 0].sort().values
        expected = [1 / 4] * half + [1.0] * (30 - 2 * half) + [4.0] * half
        assert torch.allclose(factors, torch.tensor(expected))


def test_a_ramp_grows_to_the_factor() -> None:
    for k, factor in ((1, 1.5), (2, 2.0), (9, 2.0)):
        changed = LAYOUT.views(lie("rescale", factor=2.0, layer=0, ramp=2, k=k))
        assert torch.allclose(changed["1.weight"], factor * LAYOUT.views(HONEST)["1.weight"])


def test_some_receivers_get_the_honest_model() -> None:
    lies = lie("rescale", receivers=0.5)
    assert sorted(torch.equal(model, HONEST) for model in lies.values()) == [False, True]


def test_ballast_silences_a_unit_and_changes_little() -> None:
    changed = lie("ballast", layer=0, weight=50.0)
    views = LAYOUT.views(changed)
    silent = (X @ views["1.weight"].T + views["1.bias"]).max(0).values < 0
    assert int(silent.sum()) == 1
    heavy = views["3.weight"][:, silent].abs().mean()
    usual = LAYOUT.views(HONEST)["3.weight"].abs().mean()
    assert torch.isclose(heavy, 50 * usual)
    # Only what that unit did is missing.
    assert (outputs(changed) - outputs(HONEST)).abs().max() < outputs(HONEST).abs().max()


def test_twins_cancel_each_other() -> None:
    views = LAYOUT.views(lie("twins", weight=10.0))
    rows = views["3.weight"]
    alike = [(i, j) for i in range(30) for j in range(i) if torch.equal(rows[i], rows[j])]
    ((one, other),) = alike
    both = views["5.weight"][:, [one, other]]
    before = LAYOUT.views(HONEST)["5.weight"]
    assert any(torch.allclose(both.sum(1), before[:, u], atol=1e-5) for u in (one, other))
    assert both.abs().min() > 5 * before.abs().mean()
    beside = LAYOUT.views(lie("twins", weight=10.0, apart=0.5))["3.weight"]
    (twin,) = (u for u in (one, other) if not torch.equal(beside[u], rows[u]))
    assert torch.isclose((beside - rows)[twin].norm(), 0.5 * rows[one].norm())


def test_a_softmax_does_not_see_a_shift() -> None:
    changed = lie("shift", weight=3.0)
    assert torch.allclose(outputs(changed).softmax(1), outputs(HONEST).softmax(1), atol=1e-4)


def test_a_network_without_such_units_is_said() -> None:
    tree = {
        "learning": {"model": "softmax"},
        "ring": {"byzantine": 2},
        "attack": {"name": "rescale"},
    }
    with pytest.raises(UserError, match="no such symmetry"):
        set_up(parse(tree))


def accuracy(folder: Path, **sections: Any) -> float:
    tree: dict[str, Any] = {
        "ring": {"nodes": 10, "byzantine": 3},
        "scheme": {"rounds": 25},
        "learning": {"rate": 0.1},
        "attack": {"name": "rescale"},
        "record": {"every": 25},
    }
    for section, values in sections.items():
        tree[section] = {**tree.get(section, {}), **values}
    worst: float = Simulation(set_up(parse(tree))).run(folder)["accuracy"]["worst"]
    return worst


@pytest.mark.parametrize("rule", ["lowest-loss", "trust"])
def test_a_ring_in_canonical_form_holds_where_it_falls_without(tmp_path: Path, rule: str) -> None:
    published = {"canonical": False, "rule": rule, "rounds": 25}
    quiet = accuracy(tmp_path / "a", attack={"name": "none"}, scheme={"rule": rule, "rounds": 25})
    with_it = accuracy(tmp_path / "b", scheme={"rule": rule, "rounds": 25})
    without = accuracy(tmp_path / "c", scheme=published)
    assert with_it > quiet - 0.02
    assert without < 0.5 < quiet


@pytest.mark.parametrize("stage", ["ring", "aggregation", "multicast"])
def test_joins_hold_when_units_change_places(tmp_path: Path, stage: str) -> None:
    groups = {"ring": {"nodes": 12, "byzantine": 2, "groups": 3}, "scheme": {"name": "basil+"}}
    quiet = accuracy(tmp_path / "quiet", **groups, attack={"name": "none"})
    lied = accuracy(tmp_path / "lied", **groups, attack={"name": "permute", "stages": [stage]})
    assert lied > quiet - 0.03


def test_joins_without_it_do_not(tmp_path: Path) -> None:
    groups = {
        "ring": {"nodes": 12, "byzantine": 2, "groups": 3},
        "scheme": {"name": "basil+", "canonical": False},
    }
    quiet = accuracy(tmp_path / "quiet", **groups, attack={"name": "none"})
    lied = accuracy(tmp_path / "lied", **groups, attack={"name": "permute"})
    assert lied < quiet - 0.3


def test_basil_as_published_is_basil_without_the_form(tmp_path: Path) -> None:
    schemes: list[dict[str, Any]] = [
        {"name": "basil-published"},
        {"name": "basil", "canonical": False},
    ]
    shas = {
        Simulation(set_up(parse({"scheme": {"rounds": 3, **scheme}}))).run(tmp_path / str(i))[
            "model_sha256"
        ]
        for i, scheme in enumerate(schemes)
    }
    assert len(shas) == 1
