"""Table, figures and page, on runs whose numbers are known."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread

from basil.errors import UserError
from basil.protocol.schemes import SCHEMES
from basil.record.read import Run, find_runs, read_run
from basil.reporting import (
    accuracy_figure,
    as_text,
    distance_figure,
    results_table,
    ring_figure,
    save,
    write_report,
)
from basil.reporting.results_table import result_rows

from fake_runs import RECIPE, write_run

VOID = {"meta", "br", "link", "img", "hr", "input"}


@pytest.fixture
def seeds(tmp_path: Path) -> list[Run]:
    """Basil with three seeds, UBAR with one, under Gaussian; Basil alone without attack."""
    for seed, worst in enumerate((0.80, 0.84, 0.88)):
        write_run(tmp_path / f"basil-{seed}", seed=seed, worst=(0.1, worst))
    write_run(tmp_path / "ubar", scheme="ubar", worst=(0.1, 0.4), seconds=1.0)
    write_run(tmp_path / "calm", attack="none", byzantine=(), worst=(0.1, 0.9))
    return find_runs([tmp_path])


def test_rows_are_cases_and_seeds_are_averaged(seeds: list[Run]) -> None:
    head, *rows = results_table(seeds)
    assert [row[:3] for row in rows] == [
        ["No attack", "Basil", "0"],
        ["Gaussian", "Basil", "0–2 (n = 3)"],
        ["Gaussian", "UBAR", "0"],
    ]
    basil = dict(zip(head, rows[1], strict=True))
    # Mean of 80, 84, 88 is 84; the squared deviations 16, 0, 16 over n - 1 = 2 make 4.
    assert basil["worst acc. %"] == "84.0 ± 4.0"
    assert basil["mean acc. %"] == "86.0 ± 4.0"
    assert basil["mean loss"] == "0.160 ± 0.040"
    assert basil["chose Byzantine %"] == "25.0"
    assert basil["messages"] == "1,200"
    assert basil["MB sent"] == "3.4"
    assert basil["virtual time"] == "12.3 s"
    assert basil["real time"] == "4.50 s"


def test_each_seed_can_have_its_row(seeds: list[Run]) -> None:
    _, *rows = results_table(seeds, each_seed=True)
    assert [row[2:4] for row in rows if row[:2] == ["Gaussian", "Basil"]] == [
        ["0", "80.0"],
        ["1", "84.0"],
        ["2", "88.0"],
    ]


def test_a_cell_that_not_all_seeds_have_measured_says_of_how_many_it_is(tmp_path: Path) -> None:
    for seed, worst in enumerate((0.80, None, 0.88)):
        write_run(tmp_path / f"{seed}", seed=seed, worst=(0.1, worst))
    head, row = results_table(find_runs([tmp_path]))
    shown = dict(zip(head, row, strict=True))
    assert shown["seed"] == "0–2 (n = 3)"
    # Deviations of ±4 from 84, squared and added, over n - 1 = 1: the root of 32.
    assert shown["worst acc. %"] == "84.0 ± 5.7 (n = 2)"


def test_the_best_is_marked_among_those_under_the_same_attack(seeds: list[Run]) -> None:
    calm, basil, ubar = result_rows(seeds)
    assert not any(cell.best for cell in calm.cells), "there is no rival"
    assert [cell.text for cell in basil.cells if cell.best] == [
        "84.0 ± 4.0",
        "86.0 ± 4.0",
        "0.160 ± 0.040",
    ]
    assert [cell.text for cell in ubar.cells if cell.best] == ["1.00 s"]


def test_what_differs_beyond_the_seed_is_named(tmp_path: Path) -> None:
    for connectivity in (3, 4):
        write_run(tmp_path / f"{connectivity}", connectivity=connectivity)
    louder = RECIPE.replace('name = "{attack}"', 'name = "{attack}"\nsigma = 10.0')
    write_run(tmp_path / "louder", recipe=louder)
    assert [row[:2] for row in results_table(find_runs([tmp_path]))[1:]] == [
        ["Gaussian, sigma 10.0", "Basil, connectivity 3"],
        ["Gaussian, sigma –", "Basil, connectivity 3"],
        ["Gaussian, sigma –", "Basil, connectivity 4"],
    ]


def test_options_that_come_with_a_rule_are_not_named_unless_they_change(tmp_path: Path) -> None:
    def schemes(*sections: str) -> list[str]:
        for i, section in enumerate(sections):
            recipe = RECIPE.replace('name = "{scheme}"', 'name = "{scheme}"\n' + section)
            write_run(tmp_path / f"{len(sections)} {i}", recipe=recipe)
        runs = find_runs([tmp_path / f"{len(sections)} {i}" for i in range(len(sections))])
        return [row[1] for row in results_table(runs)[1:]]

    plain, trusting, strict = 'rule = "a"', 'rule = "b"\nz = 2.0', 'rule = "b"\nz = 1.0'
    assert schemes(plain, trusting) == ["Basil, rule a", "Basil, rule b"]
    assert schemes(plain, trusting, strict) == [
        "Basil, rule a, z –",
        "Basil, rule b, z 1.0",
        "Basil, rule b, z 2.0",
    ]


def test_an_unfinished_run_shows_what_there_is_and_wins_nothing(tmp_path: Path) -> None:
    write_run(tmp_path / "a", scheme="ubar", worst=(0.1, 0.3))
    write_run(tmp_path / "b", finished=False, worst=(0.1, 0.5, 0.8))
    unfinished, finished = result_rows(find_runs([tmp_path]))
    texts = [cell.text for cell in unfinished.cells]
    assert texts[1:] == [
        "Basil (unfinished, round 2)", "0", "80.0", "82.0", "0.200", "–", "–", "–",
        "1.50 s", "500 ms",
    ]  # fmt: skip
    assert not any(cell.best for cell in (*unfinished.cells, *finished.cells))


def test_numbers_that_are_missing_or_not_finite(tmp_path: Path) -> None:
    loss = {"worst": float("nan"), "mean": float("inf")}
    write_run(tmp_path / "run", worst=(None, None), loss=loss, messages=None)
    head, row = results_table(find_runs([tmp_path]))
    shown = dict(zip(head, row, strict=True))
    assert shown["worst acc. %"] == shown["messages"] == shown["MB sent"] == "–"
    assert shown["mean loss"] == "not finite"


def test_a_loss_that_has_run_away_stays_short(tmp_path: Path) -> None:
    write_run(tmp_path / "run", loss={"worst": 9e9, "mean": 71_255_110.806})
    head, row = results_table(find_runs([tmp_path]))
    assert dict(zip(head, row, strict=True))["mean loss"] == "7.13e+07"


def test_text_is_aligned() -> None:
    rows = [["attack", "scheme", "seed", "acc."], ["none", "Basil", "0", "9.5"]]
    assert as_text(rows).split("\n") == [
        "attack  scheme  seed  acc.",
        "──────  ──────  ────  ────",
        "none    Basil   0      9.5",
    ]


def test_the_table_does_without_matplotlib() -> None:
    code = "import sys, basil.reporting.results_table; print('matplotlib' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.strip() == "False"


def test_no_panel_is_cut_off_by_another(tmp_path: Path) -> None:
    low = write_run(tmp_path / "a", attack="gaussian", worst=(0.1, 0.2))
    high = write_run(tmp_path / "b", attack="hidden", worst=(0.1, 0.9))
    for axes in accuracy_figure([read_run(low), read_run(high)]).axes:
        bottom, top = axes.get_ylim()
        assert bottom == 0
        assert top >= 0.9


def test_accuracy_figure_has_a_panel_for_each_attack_and_a_band_for_seeds(
    seeds: list[Run],
) -> None:
    figure = accuracy_figure(seeds)
    calm, gaussian = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["No attack", "Gaussian"]
    assert [len(axes.lines) for axes in figure.axes] == [1, 2]
    np.testing.assert_allclose(np.asarray(gaussian.lines[0].get_ydata()), [0.1, 0.84])
    assert not calm.collections
    (band,) = gaussian.collections
    edges = np.asarray(band.get_paths()[0].vertices)
    np.testing.assert_allclose(
        sorted(set(np.round(edges[edges[:, 0] == 1, 1], 6))), [0.80, 0.88], atol=1e-6
    )
    assert calm.lines[0].get_color() == gaussian.lines[0].get_color()
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["Basil", "UBAR"], "chance is unknown, so it is not drawn"


def test_chance_is_drawn_where_the_classes_are_known(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", classes=4))
    figure = accuracy_figure([run])
    assert np.asarray(figure.axes[0].lines[-1].get_ydata()).tolist() == [0.25, 0.25]


def test_regression_draws_the_loss(tmp_path: Path) -> None:
    figure = accuracy_figure([read_run(write_run(tmp_path / "run", worst=(None, None)))])
    assert np.asarray(figure.axes[0].lines[0].get_ydata()).tolist() == [2.5, 2.5]


def test_the_figure_of_a_regression_is_called_loss(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", worst=(None, None)))
    paths = write_report([run], tmp_path / "page")
    names = {path.name for path in paths.figures}
    assert "loss.png" in names
    assert "accuracy.png" not in names
    assert 'aria-label="Test loss over rounds"' in paths.page.read_text()


def test_a_scheme_has_one_look_whatever_it_is_drawn_with(tmp_path: Path) -> None:
    schemes = list(SCHEMES)
    runs = {s: read_run(write_run(tmp_path / s, scheme=s, connectivity=3)) for s in schemes}
    other = read_run(write_run(tmp_path / "other", scheme="basil", connectivity=4))

    def looks(figure: Figure) -> dict[str, tuple[object, ...]]:
        return {
            str(line.get_label()): (line.get_color(), line.get_marker(), line.get_linestyle())
            for line in figure.legends[0].get_lines()
        }

    together = looks(accuracy_figure(runs.values()))
    assert len({colour for colour, *_ in together.values()}) == len(schemes)
    for run in runs.values():
        [(label, look)] = looks(accuracy_figure([run])).items()
        assert together[label] == look
    # Where a scheme has two lines the first has its colour, the other one that nobody has.
    both = looks(accuracy_figure([runs["basil"], runs["ubar"], other]))
    assert both["Basil, connectivity 3"] == together["Basil"]
    assert both["UBAR"] == together["UBAR"]
    assert len(set(both.values())) == 3


def test_nothing_measured_is_said(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", worst=(), finished=False))
    with pytest.raises(UserError, match="nothing to plot"):
        accuracy_figure([run])


@pytest.mark.parametrize("nodes", [1, 2, 10, 400])
def test_ring_and_distance_of_any_size_and_of_nodes_that_never_chose(
    tmp_path: Path, nodes: int
) -> None:
    for name, choices in {
        "never": (),
        "own": ((1, 0, None),),
        "once": ((1, nodes - 1, 0), (2, nodes - 1, 0)),
    }.items():
        folder = tmp_path / name
        run = read_run(
            write_run(folder, nodes=nodes, byzantine=(), choices=choices, connectivity=1)
        )
        for figure in (ring_figure(run), distance_figure(run)):
            png, _ = save(figure, tmp_path / name)
            assert imread(png).std() > 0


def test_believed_lies_stand_out_and_the_choices_of_byzantine_nodes_do_not_count(
    tmp_path: Path,
) -> None:
    choices = ((1, 3, 2), (1, 4, 3), (2, 4, 3), (1, 5, 4), (1, 2, 1))
    figure = ring_figure(read_run(write_run(tmp_path / "run", choices=choices)))
    red = [patch for patch in figure.axes[0].patches if to_rgb(patch.get_edgecolor())[0] > 0.5]
    assert len(red) == 1
    assert len(np.asarray(red[0].get_path().vertices)) == 3, "one curve, from 2 to 3"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [
        "benign node (5)",
        "Byzantine node (1)",
        "chose a benign model (75.0 %)",
        "chose a Byzantine model (25.0 %)",
    ]


def test_distances_are_places_on_the_ring(tmp_path: Path) -> None:
    # 0 took 5, one place back across the seam; 4 took 1, three back; 2 lies, and does not count.
    choices = ((1, 0, 5), (2, 0, 5), (1, 4, 1), (1, 3, None), (1, 2, 1))
    figure = distance_figure(read_run(write_run(tmp_path / "run", choices=choices)))
    bars, own = figure.axes[0].containers
    np.testing.assert_allclose([bar.get_height() for bar in bars], [0.5, 0, 0.25])
    assert own[0].get_height() == 0.25


def test_saved_figures_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    first = [path.read_bytes() for path in save(ring_figure(run), tmp_path / "S=0.5")]
    again = [path.read_bytes() for path in save(ring_figure(run), tmp_path / "again")]
    assert first == again
    assert (tmp_path / "S=0.5.png").is_file()
    height, width, _ = imread(tmp_path / "S=0.5.png").shape
    assert (width, height) == (780, 900)


def test_the_page_says_it_all_and_needs_nothing_else(tmp_path: Path, seeds: list[Run]) -> None:
    report = write_report(seeds, tmp_path / "out")
    page = report.page.read_text()
    assert page.startswith("<!doctype html>")
    assert "<h1>Basil and UBAR: no attack and Gaussian</h1>" in page
    assert "<strong>84.0 ± 4.0</strong>" in page
    assert "abc1234" in page
    assert "f00d" * 16 in page
    assert "torch 2.9.1" in page
    assert page.count("<svg") == 2 + 2 * 3, "curves, heat-map, and two of each of three cases"
    assert len(report.figures) == 2 * (2 + 2 * 3)
    assert all(path.stat().st_size > 1000 for path in report.figures)
    assert str(tmp_path) not in page
    outside = re.findall(r"(?:src|href|url\(|@import)\W{0,3}(?:https?:|//|file:)[^\s>]*", page)
    assert outside == []
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for used in re.findall(r'(?:href="#|url\(#)([^")]+)', page):
        assert used in ids
    _Balanced().check(page)


def test_the_page_survives_html_in_a_recipe(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script>--><b a=\"b\">$\\frac$"
    recipe = RECIPE.replace('name = "digits"', f"name = '''{evil}'''")
    folder = write_run(tmp_path / "a", recipe=recipe, scheme="basil", dataset=evil)
    write_run(tmp_path / "b", recipe=recipe.replace("iid", "other"), attack="x", finished=False)
    summary = (folder / "summary.json").read_text()
    (folder / "summary.json").write_text(summary.replace('"gaussian"', '"<script>$\\\\a$-->"'))
    page = write_report(find_runs([tmp_path]), tmp_path / "out").page.read_text()
    assert "<script" not in page.lower()
    assert "&lt;script&gt;alert(" in page
    assert "1 of 2 runs are unfinished" in page
    _Balanced().check(page)


def test_a_page_about_a_run_that_has_just_begun(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", worst=(), choices=(), finished=False))
    report = write_report([run], tmp_path / "out")
    assert report.figures == []
    assert "Nothing has been measured yet" in report.page.read_text()


def test_no_more_rings_than_a_page_can_bear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("basil.reporting.page.MOST_RINGS", 2)
    for number in range(3):
        write_run(tmp_path / f"{number}", attack=f"attack_{number}")
    report = write_report(find_runs([tmp_path]), tmp_path / "out")
    assert sum(path.name.startswith("ring-") for path in report.figures) == 2 * 2


def test_a_headline_counts_what_it_cannot_list(tmp_path: Path) -> None:
    for scheme in range(7):
        write_run(tmp_path / f"{scheme}", scheme=f"scheme_{scheme}", attack="none", choices=())
    write_run(tmp_path / "byzantine", scheme="scheme_0", choices=())
    page = write_report(find_runs([tmp_path]), tmp_path / "out").page.read_text()
    assert "<h1>7 schemes: no attack and Gaussian</h1>" in page


def test_a_report_on_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run"):
        write_report([], tmp_path)


class _Balanced(HTMLParser):
    """Every tag that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def check(self, page: str) -> None:
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
