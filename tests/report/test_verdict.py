"""Verdicts: worked by hand on runs with known numbers."""

from dataclasses import replace

import numpy as np
import pytest

from basil.recipe.figure import Curve, Expectation, Figure, Panel
from basil.record.read import read_run
from basil.reporting.curves import panels_figure
from basil.reporting.reproduction import Reproduction, write_reproduction
from basil.reporting.reproductions import write_set
from basil.reporting.run_groups import RunGroup
from basil.reporting.verdict import Traced, verdicts

from fake_runs import write_run


@pytest.fixture
def judged(tmp_path):
    """On Basil, 70 and 80 % with two seeds, and UBAR, 41 and 43 % after a best of 50 %."""

    def judge(*expected, metric="worst", against="rounds", finished=True):
        figure = figure_of(*expected, metric=metric, against=against)
        return verdicts(figure, traced(tmp_path, finished))

    return judge


def figure_of(*expected, metric="worst", against="rounds"):
    panels = (Panel("Gaussian attack"),)
    curves = (Curve("basil"), Curve("ubar"))
    return Figure(
        "fig0", "A title", "A claim", {}, "A note", metric, against,
        panel=panels, curve=curves, expect=expected,
    )  # fmt: skip


def traced(folder, finished=True):
    basil = [
        write_run(folder / "b0", seed=0, worst=(0.1, 0.6, 0.7), finished=finished),
        write_run(folder / "b1", seed=1, worst=(0.1, 0.4, 0.8)),
    ]
    ubar = [
        write_run(folder / "u0", scheme="ubar", seed=0, worst=(0.1, 0.5, 0.41)),
        write_run(folder / "u1", scheme="ubar", seed=1, worst=(0.1, 0.5, 0.43)),
    ]
    return {
        ("a", name): Traced("a", name, label, tuple(map(read_run, folders)), 2, 2)
        for name, label, folders in (("basil", "Basil", basil), ("ubar", "UBAR", ubar))
    }


def expects(**bounds):
    return Expectation("basil", ("a",), **bounds)


def test_the_distance_of_two_curves_is_that_of_their_means_over_seeds(judged):
    """75 − 42 = 33; the deviations are those of 70, 80 and of 41, 43: 5√2 and √2."""
    [close, far] = judged(expects(than="ubar", at_least=33), expects(than="ubar", at_least=33.1))
    assert str(close) == (
        "(a) expected: Basil ≥ UBAR + 33 points; measured 75.0 ± 7.1 against 42.0 ± 1.4 (+33.0): "
        "agrees"
    )
    assert far.outcome == "differs"


def test_verdicts_come_in_the_order_of_the_panels(tmp_path):
    panels = tuple(Panel(f"No. {i}") for i in range(27))
    asked = (
        Expectation("basil", ("aa", "b", "a"), at_least=1),
        Expectation("basil", ("b",), at_least=2),
    )
    figure = replace(figure_of(*asked), panel=panels)
    runs = traced(tmp_path)["a", "basil"]
    found = verdicts(figure, {(p, "basil"): runs for p in figure.panels})
    assert [verdict.panel for verdict in found] == ["a", "b", "b", "aa"]


def test_a_share_of_the_other(judged):
    [found, less] = judged(
        expects(than="ubar", of="share", at_least=1.78),
        Expectation("ubar", ("a",), than="basil", of="share", at_least=0.6),
    )
    assert str(found) == (
        "(a) expected: Basil ≥ 1.78 of UBAR; measured 75.0 ± 7.1 against 42.0 ± 1.4 (1.79): agrees"
    )
    assert less.outcome == "differs"  # 42 of 75 are 0.56


def test_a_figure_may_show_another_quantity_as_it_is(tmp_path):
    """Loss and not accuracy: no per cent, no points."""
    asked = (expects(than="ubar", of="share", at_most=1.05), expects(at_most=9.0))
    figure = replace(figure_of(*asked), quantity="loss")
    curves = traced(tmp_path / "runs")
    first = [run.metrics[-1]["loss"]["worst"] for run in curves["a", "basil"].runs]
    [share, bound] = verdicts(figure, curves)
    assert f"measured {np.mean(first):.1f}" in str(bound)
    assert "%" not in str(bound)
    assert "of UBAR; measured" in str(share)
    found = Reproduction(
        figure, "basil reproduce", False, "digits", "", tuple(curves.values()), (share,), {}
    )
    text = (write_reproduction(found, tmp_path / "out") / "README.md").read_text()
    assert "Test loss over the benign nodes at the end (mean" in text
    assert f"| 2 | 2 | {np.mean(first):.2f}" in text


def test_how_much_a_curve_goes_up_and_down(judged):
    """From round 1 to 2, the second half: 10 and 40 points, and 9 and 7."""
    [found] = judged(expects(than="ubar", of="swing", at_most=3.1))
    assert str(found) == (
        "(a) expected: Basil goes up and down ≤ 3.1 times as much as UBAR; measured 25.00 ±"
        " 21.21 points against 8.00 ± 1.41 (3.12): differs"
    )


def test_bounds_may_be_per_cent_and_on_both_sides(judged):
    found = judged(
        expects(at_most=74.9),
        expects(at_least=75, at_most=75),
        expects(than="ubar", at_least=-5, at_most=5),
    )
    assert [v.outcome for v in found] == ["differs", "agrees", "differs"]
    assert found[0].expected == "Basil ≤ 74.9 %"
    assert found[2].expected == "Basil ≥ UBAR − 5 points and ≤ UBAR + 5 points"


def test_the_mean_of_the_benign_nodes_where_the_figure_shows_that(judged):
    assert judged(expects(at_least=0), metric="mean")[0].measured == "77.0 ± 7.1"


def test_a_panel_may_show_the_other_of_the_two(tmp_path):
    """Fig. 15: the mean in one panel, the worst in the other."""
    curves = traced(tmp_path / "runs")
    curves |= {("b", name): replace(each, panel="b") for (_, name), each in curves.items()}
    figure = replace(
        figure_of(Expectation("basil", ("a", "b"), at_least=0)),
        panel=(Panel("Mean", "mean"), Panel("Worst")),
    )
    found = verdicts(figure, curves)
    assert [(v.panel, v.measured) for v in found] == [("a", "77.0 ± 7.1"), ("b", "75.0 ± 7.1")]
    drawn = panels_figure(
        [RunGroup(each.label, letter, each.runs, True) for (letter, _), each in curves.items()],
        {"a": "mean", "b": "worst"},
        "rounds",
        4,
    )
    ends = [np.asarray(axes.lines[0].get_ydata())[-1] for axes in drawn.axes]
    assert ends == [pytest.approx(0.77), pytest.approx(0.75)]


def test_a_curve_that_goes_astray_leaves_the_others_to_be_seen(tmp_path):
    """Losses 1.0, 0.6, 0.3 of one run, and 1.0, 0.6, 10⁹ of another."""
    ends = {"steady": 0.8, "astray": -1e9}
    groups = [
        RunGroup(name, "a", (read_run(write_run(tmp_path / name, worst=(0.1, 0.5, end))),), True)
        for name, end in ends.items()
    ]
    axes = panels_figure(groups, {"a": "worst"}, "rounds", 4, "loss").axes[0]
    low, high = axes.get_ylim()
    assert 0 < low < 0.3
    assert 1.0 < high < 1.2
    seen = panels_figure(groups[:1], {"a": "worst"}, "rounds", 4, "loss").axes[0].get_ylim()
    assert seen[0] < 0.3
    assert seen[1] == pytest.approx(1.0, abs=0.05)


def test_how_soon_one_is_as_good_as_the_other_ever_gets(judged):
    """UBAR is best, 50 %, in round 1.  Basil is there in round 1 with one seed, in round 2 with the
    other: 1 and 2 times as late, 1.5 ± 0.71."""
    [found, late] = judged(
        expects(than="ubar", of="reach", at_most=1.5), expects(than="ubar", of="reach", at_most=1.4)
    )
    assert found.measured == "1.50 ± 0.71"
    assert (found.outcome, late.outcome) == ("agrees", "differs")


def test_who_never_gets_there_differs(judged):
    never = Expectation("ubar", ("a",), than="basil", of="reach", at_most=9)
    assert judged(never)[0].outcome == "differs"


def test_an_unfinished_run_is_said_to_be_one(judged):
    [verdict] = judged(expects(at_least=50), finished=False)
    assert verdict.outcome == "not finished; so far it agrees"


def test_what_is_not_finished_is_compared_where_all_have_got_to(tmp_path):
    """One of Basil's two is in round 1, with 60 %: there the other has 40 %, and UBAR 50 %, twice.
    In the end UBAR has 42 %, and Basil would have been ahead of it."""
    curves = traced(tmp_path)
    late = write_run(tmp_path / "late", seed=0, worst=(0.1, 0.6), finished=False)
    runs = read_run(late), curves["a", "basil"].runs[1]
    curves["a", "basil"] = replace(curves["a", "basil"], runs=runs)
    [found] = verdicts(figure_of(expects(than="ubar", at_least=1)), curves)
    assert found.measured == "in round 1 50.0 ± 14.1 against 50.0 ± 0.0 (+0.0)"
    assert found.outcome == "not finished; so far it differs"


def test_before_the_first_round_there_is_nothing_to_compare(tmp_path):
    curves = traced(tmp_path)
    begun = read_run(write_run(tmp_path / "begun", seed=0, worst=(0.1,), finished=False))
    curves["a", "basil"] = replace(curves["a", "basil"], runs=(begun,))
    [found] = verdicts(figure_of(expects(than="ubar", at_least=0)), curves)
    assert (found.measured, found.outcome) == ("nothing yet", "not finished")


def test_a_title_says_what_was_learned(tmp_path):
    figure = replace(
        figure_of(), title="CIFAR-10, IID: Basil", base={"data": {"dataset": "cifar10"}}
    )
    curves = tuple(traced(tmp_path).values())
    titles = {
        data: Reproduction(figure, "", True, data, "6 nodes", curves, (), {}).title
        for data in ("cifar10", "digits", "mnist")
    }
    assert titles == {
        "cifar10": "CIFAR-10, IID: Basil",
        "digits": "Digits for CIFAR-10, IID: Basil",
        "mnist": "MNIST for CIFAR-10, IID: Basil",
    }


def test_a_reproduction_is_a_folder_that_says_where_it_comes_from(tmp_path):
    figure = figure_of(expects(than="ubar", at_least=40), expects(at_least=50))
    curves = traced(tmp_path / "runs")
    found = Reproduction(
        figure, "basil reproduce fig0 --seeds 2", False, "digits", "6 nodes, 2 rounds",
        tuple(curves.values()), tuple(verdicts(figure, curves)), {},
    )  # fmt: skip
    folder = write_reproduction(found, tmp_path / "out")
    assert {path.name for path in folder.iterdir()} == {
        "README.md", "curves.csv", "figure.png", "figure.svg", "reproduction.json"
    }  # fmt: skip
    text = (folder / "README.md").read_text()
    for part in (
        "A claim",
        "`basil reproduce fig0 --seeds 2` (full size: digits, 6 nodes, 2 rounds, 2 seeds)",
        "commit: abc1234",
        "machine: a machine (cpu), torch 2.9.1",
        "(a) expected: Basil ≥ UBAR + 40 points",
        "**differs**",
        "| (a) Gaussian attack | Basil | 2 | 2 | 75.00 ± 7.07 | 77.00 ± 7.07 |",
    ):
        assert part in text
    assert "round 1" not in text
    earlier = replace(found, figure=replace(figure, at=(1, 7), says="The goal"))
    text = (write_reproduction(earlier, tmp_path / "earlier") / "README.md").read_text()
    assert "**The goal:** A claim" in text
    assert "| panel | curve | round 1 | round 7 | rounds | seeds | worst | mean |" in text
    # 60 and 40 in round 1; the mean over nodes lies 2 points above the worst
    assert "| Basil | 50.00 ± 14.14 / 52.00 ± 14.14 | – | 2 | 2 | 75.00 ± 7.07 |" in text
    rows = (folder / "curves.csv").read_text().splitlines()
    assert rows[0].startswith("panel,curve,label,round,seeds,worst_mean,worst_std,mean_mean")
    assert rows[2].startswith("a,basil,Basil,1,2,50.00,14.14,52.00,14.14")  # of 60 and 40
    assert len(rows) == 1 + 2 * 3

    pages = write_set(tmp_path / "out")
    for page in pages:
        assert "1 agrees, 1 differs" in page.read_text()
    assert "<svg" in pages[1].read_text()
