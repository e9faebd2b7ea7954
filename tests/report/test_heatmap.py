"""The heat-map: numbers worked out by hand, order, gaps, and when it is drawn at all."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.image import imread

from basil.errors import UserError
from basil.record.read import Run, find_runs, read_run
from basil.reporting import heatmap_figure, save, write_report
from basil.reporting.heatmap import Entry, grid, ink_on

from fake_runs import write_run

# Neither the paper's order nor that of the alphabet.
SCHEMES, ATTACKS = ("ubar", "basil", "r-plain"), ("sign-flip", "none", "gaussian")
WORST = {
    ("ubar", "sign-flip"): (0.70, 0.73, 0.79),
    ("ubar", "none"): (0.90, 0.92),
    ("ubar", "gaussian"): (0.5,),
    ("basil", "sign-flip"): (0.8, 0.8, 0.8),
    ("basil", "none"): (0.9, 0.9),
    ("basil", "gaussian"): (0.85, 0.87),
    ("r-plain", "sign-flip"): (0.6, 0.7),
    ("r-plain", "none"): (0.95, 0.97),
}


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Three schemes × three attacks, up to three seeds; r-plain under Gaussian is missing."""
    return [
        read_run(_write(tmp_path, scheme, attack, seed, worst))
        for scheme in SCHEMES
        for attack in ATTACKS
        for seed, worst in enumerate(WORST.get((scheme, attack), ()))
    ]


def _write(
    folder: Path, scheme: str, attack: str, seed: int = 0, worst: float = 0.5, **more: Any
) -> Path:
    name = folder / f"{scheme}-{attack}-seed{seed}"
    return write_run(name, scheme=scheme, attack=attack, seed=seed, worst=(0.1, worst), **more)


def _texts(axes: Axes) -> dict[tuple[int, int], list[str]]:
    """(row, column) → what is written in that cell, from top to bottom."""
    found: dict[tuple[int, int], list[str]] = {}
    for text in sorted(axes.texts, key=lambda text: text.get_position()[1]):
        across, down = text.get_position()
        found.setdefault((int(down), int(across)), []).append(text.get_text())
    return found


def test_entries_are_mean_and_sample_deviation_over_seeds(runs: list[Run]) -> None:
    entries = grid(runs).entries
    # 70, 73, 79: mean 74, squared deviations 16, 1, 25 over n - 1 = 2.
    entry = entries["UBAR", "Sign flip"]
    assert (entry.mean, entry.spread, entry.seeds) == pytest.approx((74, 21**0.5, 3))
    # 90, 92: mean 91, squared deviations 1, 1 over n - 1 = 1.
    entry = entries["UBAR", "No attack"]
    assert (entry.mean, entry.spread, entry.seeds) == pytest.approx((91, 2**0.5, 2))
    assert entries["UBAR", "Gaussian"] == Entry(50, None, 1)
    assert len(entries) == len(WORST)


def test_cells_show_the_numbers_in_the_order_in_which_the_runs_were_given(runs: list[Run]) -> None:
    figure = heatmap_figure(runs)
    axes, bar = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["UBAR", "Basil", "R-plain"]
    attacks = ["Sign flip", "No attack", "Gaussian"]
    assert [label.get_text() for label in axes.get_xticklabels()] == attacks
    assert axes.yaxis_inverted(), "the first scheme stands at the top"
    assert _texts(axes) == {
        (0, 0): ["74.0", "±4.6"],
        (0, 1): ["91.0", "±1.4"],
        (0, 2): ["50.0"],  # a single seed deviates from nothing
        (1, 0): ["80.0", "±0.0"],
        (1, 1): ["90.0", "±0.0"],
        (1, 2): ["86.0", "±1.4"],
        (2, 0): ["65.0", "±7.1"],
        (2, 1): ["96.0", "±1.4"],
        (2, 2): ["–"],
    }
    colours = axes.collections[0].get_array()
    assert isinstance(colours, np.ma.MaskedArray)
    np.testing.assert_allclose(colours.filled(-1), [[74, 91, 50], [80, 90, 86], [65, 96, -1]])
    assert figure.get_suptitle().endswith("(n = 1–3)")
    assert "chance" not in [label.get_text() for label in bar.get_yticklabels()]


def test_one_seed_shows_no_deviation(tmp_path: Path) -> None:
    for scheme in SCHEMES:
        for attack in ATTACKS:
            _write(tmp_path, scheme, attack)
    figure = heatmap_figure(find_runs([tmp_path]))
    assert {text.get_text() for text in figure.axes[0].texts} == {"50.0"}
    assert figure.get_suptitle() == "worst benign accuracy % (one seed)"


def test_an_unfinished_run_is_no_outcome(tmp_path: Path) -> None:
    for scheme in ("basil", "ubar"):
        for attack in ("none", "gaussian"):
            _write(tmp_path, scheme, attack, finished=(scheme, attack) != ("ubar", "gaussian"))
    _write(tmp_path, "basil", "none", seed=1, worst=0.9, finished=False)
    axes = heatmap_figure(find_runs([tmp_path])).axes[0]
    assert sorted(text.get_text() for text in axes.texts) == ["50.0", "50.0", "50.0", "–"]


def test_chance_is_marked_where_the_classes_are_known(tmp_path: Path) -> None:
    for scheme in ("basil", "ubar"):
        for attack in ("none", "gaussian"):
            _write(tmp_path, scheme, attack, classes=8)
    bar = heatmap_figure(find_runs([tmp_path])).axes[-1]
    marks = dict(zip(bar.get_yticks(), bar.get_yticklabels(), strict=True))
    assert marks[12.5].get_text() == "chance"


def test_the_success_of_a_backdoor_has_its_own_column(tmp_path: Path) -> None:
    for scheme, rates in {"basil": (0.02, 0.06), "ubar": (1.0, 1.0)}.items():
        for seed, rate in enumerate(rates):
            _write(tmp_path, scheme, "none", seed)
            _write(tmp_path, scheme, "backdoor", seed, attack_success={"worst": rate, "mean": 0})
    _write(tmp_path, "local", "none")
    accuracy, success, _ = heatmap_figure(find_runs([tmp_path])).axes
    assert len(accuracy.get_xticklabels()) == 2
    assert [label.get_text() for label in success.get_xticklabels()] == ["Backdoor"]
    # 2, 6: mean 4, squared deviations 4, 4 over n - 1 = 1.  Nobody attacked "local".
    rows = {"Basil": ["4.0", "±2.8"], "Local": ["–"], "UBAR": ["100.0", "±0.0"]}
    shown = [label.get_text() for label in accuracy.get_yticklabels()]
    assert {shown[row]: texts for (row, _), texts in _texts(success).items()} == rows
    light, dark = success.collections[0].get_cmap()([0.0, 1.0])
    assert light[:3].sum() > dark[:3].sum(), "success is the attacker's: much of it is bad"


def test_text_can_be_read_on_every_colour() -> None:
    shades = mpl.colormaps["viridis"]
    assert ink_on(shades(0.0)) == "white"
    assert ink_on(shades(1.0)) == "black"


def test_eleven_schemes_and_eighteen_attacks_stay_apart(tmp_path: Path) -> None:
    for scheme in range(11):
        for attack in range(18):
            for seed in (0, 1):
                name = f"a_long_attack_number_{attack}"
                _write(tmp_path, f"scheme_{scheme:02d}", name, seed, worst=seed / 2)
    figure = heatmap_figure(find_runs([tmp_path]))
    png, svg = save(figure, tmp_path / "heatmap")
    assert svg.stat().st_size < 300_000
    assert imread(png).std() > 0
    axes = figure.axes[0]
    across, down = axes.transData.transform([(0, 0), (1, 1)]).T
    cell = abs(across[1] - across[0]), abs(down[1] - down[0])
    for text in axes.texts:
        box = text.get_window_extent()
        assert box.width < cell[0]
        assert box.height < cell[1] / 2


@pytest.mark.parametrize(
    ("schemes", "attacks", "drawn"),
    [(2, 2, True), (1, 3, False), (3, 1, False), (1, 1, False)],
)
def test_the_page_has_it_where_there_is_something_to_compare(
    tmp_path: Path, schemes: int, attacks: int, drawn: bool
) -> None:
    for scheme in SCHEMES[:schemes]:
        for attack in ATTACKS[:attacks]:
            _write(tmp_path, scheme, attack)
    report = write_report(find_runs([tmp_path]), tmp_path / "out")
    names = [path.name for path in report.figures if path.stem == "heatmap"]
    assert names == (["heatmap.png", "heatmap.svg"] if drawn else [])
    assert ("Every scheme against every attack" in report.page.read_text()) is drawn


def test_regression_has_no_heatmap(tmp_path: Path) -> None:
    for scheme in SCHEMES:
        for attack in ATTACKS:
            folder = _write(tmp_path, scheme, attack)
            summary = json.loads((folder / "summary.json").read_text())
            (folder / "summary.json").write_text(json.dumps(summary | {"accuracy": None}))
    with pytest.raises(UserError, match="here are 0 and 0"):
        heatmap_figure(find_runs([tmp_path]))
