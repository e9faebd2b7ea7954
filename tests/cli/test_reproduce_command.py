"""basil reproduce: runs, figure, verdicts; what is there is not repeated."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from basil.recipe.figure import figures

from cli_helpers import FIGURE


@pytest.fixture
def two(tiny):
    (tiny / "two.toml").write_text(FIGURE)
    return tiny


def stamps(folder):
    return {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*")}


def test_a_figure_is_run_drawn_judged_and_not_run_again(basil, two):
    words = ["reproduce", "two.toml", "--seeds", "2", "--jobs", "1", "--out", "paper"]
    first = basil(*words)
    assert first.code == 0
    runs = sorted(path for path in (two / "paper/runs").iterdir() if path.is_dir())
    assert len(runs) == 8  # two panels × two schemes × two seeds; `again` shares its runs
    lines = first.out.splitlines()
    assert [line.split("  ")[0] for line in lines[:8]] == [f"done {i}/8" for i in range(1, 9)]
    assert "two: Two schemes (full size: synthetic, 5 nodes, 4 rounds, 2 seeds)" in lines
    verdicts = [line.strip() for line in lines if "expected:" in line]
    assert [line.rsplit(": ", 1)[1] for line in verdicts] == ["agrees", "differs", "agrees"]
    assert verdicts[1].startswith("(a) expected: Basil ≥ Basil again + 1 points; measured ")
    assert "(+0.0): differs" in verdicts[1]
    assert any("They are the same." in line for line in lines)
    assert (two / "paper/two/figure.png").exists()
    for page in ("README.md", "index.html"):
        assert "Basil learns, R-plain does not." in (two / "paper" / page).read_text()

    before = stamps(two / "paper")
    again = basil(*words, "--publish", "docs/results")
    assert [line for line in again.out.splitlines() if "expected:" in line] == [
        line for line in lines if "expected:" in line
    ]
    assert "done" not in again.out
    assert stamps(two / "paper") == before
    published = {str(p.relative_to(two / "docs/results")) for p in (two / "docs").rglob("*.*")}
    assert published >= {"README.md", "two/README.md", "two/figure.png", "two/curves.csv"}
    assert not any(name.endswith((".safetensors", ".html", ".svg")) for name in published)
    command = "basil reproduce two --seeds 2"
    assert command in (two / "docs/results/two/README.md").read_text()


def test_draw_only_runs_nothing_and_says_what_is_missing(basil, two):
    words = ["reproduce", "two.toml", "--quick", "--out", "paper", "--draw-only", "--json"]
    [(name, verdicts)] = basil(*words).json.items()
    assert name == "two"
    assert {v["outcome"] for v in verdicts} == {"not finished"}
    assert not (two / "paper/runs").exists()


def test_a_missing_data_set_is_named_with_the_way_to_get_it(refused, two, monkeypatch):
    monkeypatch.setenv("BASIL_DATA", str(two / "nothing"))
    sentence = refused("reproduce", "fig4")
    assert "fig4 needs the data set cifar10, which is not on this machine" in sentence
    assert "basil data get cifar10" in sentence
    assert not (two / "runs").exists()


def test_all_runs_what_it_can_where_data_is_missing(basil, two, monkeypatch):
    monkeypatch.setenv("BASIL_DATA", str(two / "nothing"))
    monkeypatch.setattr(
        "basil.recipe.figure.figures", lambda: {n: figures()[n] for n in ("fig4", "remarks")}
    )
    answer = basil("reproduce", "--all")
    assert answer.code == 2
    assert "basil: fig4 needs the data set cifar10" in answer.err
    assert "remarks: The remarks' numbers" in answer.out


def test_the_remarks_numbers_differ_where_the_errata_say_so(basil):
    """Each computed by another route in tests/theory; here: which of them are errata."""
    [verdicts] = basil("reproduce", "remarks", "--json").json.values()
    different = {v["expected"].split(":")[0] for v in verdicts if v["outcome"] != "agrees"}
    assert different == {
        "seconds of ACDS at 100 Mb/s (after Prop. 3)",
        "failure for N = 100, b = 33, n = 10, S = n − 1 (§V-C, case 1)",
        "failure for N = 400, b = 60, n = 100, S = 7 (after Prop. 5, order of magnitude)",
        "time of 16 groups of 25 over one group, every T = 1 (§VI-B)",
    }
    assert all(v["note"] for v in verdicts if v["outcome"] != "agrees")


def test_table_3_is_measured_here(basil, tiny):
    [(ratio, step)] = basil("reproduce", "table3", "--json", "--out", "t").json.values()
    assert float(ratio["measured"]) > 0
    assert float(step["measured"]) > 0
    facts = json.loads((tiny / "t/table3/reproduction.json").read_text())
    assert "cores (cpu)" in facts["machines"][0]


def test_every_figure_is_listed(basil):
    titles = basil("reproduce", "--list", "--json").json
    kinds = (
        "ablation",
        "extrapolation",
        "rules",
        "symmetry",
        "optimizers",
        "llm",
        "field",
        "robust",
        "network",
    )
    ours = {name for name in titles if name.partition("-")[0] in kinds}
    assert len(ours) == 1 + 2 + 9 + 10 + 1 + 1 + 5 + 2 + 1
    assert titles.keys() == {*figures(), *ours}
    assert titles["rules"] == "Selection rules under every attack (not the paper's)"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "which figure? e.g. basil reproduce fig4 --quick"),
        (["fig44"], "figure 'fig44' does not exist; there are fig1, fig4, fig5, fig6, fig7, fig8"),
        (["demo"], "demo.toml describes no figure"),
        (["remarks", "--seeds", "0"], "--seeds 0: it must be 1 or more"),
        (["fig4", "--quick", "--log", "nowhere:Thing"], "--log nowhere:Thing: No module named"),
        (["fig4", "--quick", "-s", "ring.nods=3"], "unknown key 'nods'"),
    ],
)
def test_a_mistake_is_said_in_one_sentence(refused, words, sentence):
    assert sentence in refused("reproduce", *words)


BARE = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    names = {"matplotlib", "jinja2", "rich", "sklearn", "requests", "platformdirs", "ray",
             "pyarrow", "tensorboard", "markupsafe", "scipy"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import importlib.util
look = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in Absent.names else look(name, *more)
if __name__ == "__main__":  # and not in the processes that it starts, which lack them as well
    from basil.cli import main
    sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_where_only_torch_is_installed_figures_are_run_and_drawn_later_elsewhere(basil, two):
    """A machine with a GPU often has torch, numpy and safetensors alone."""
    (two / "bare.py").write_text(BARE)
    words = ["reproduce", "two.toml", "--quick", "--jobs", "1", "--out", "paper"]
    there = subprocess.run(
        [sys.executable, "bare.py", *words],
        cwd=two,
        capture_output=True,
        text=True,
        env={**os.environ, "BASIL_DATA": str(two)},
    )
    assert there.returncode == 0, there.stderr
    assert "no figure was drawn: matplotlib is not installed here" in there.stderr
    assert not (two / "paper/two/figure.png").exists()
    assert "agrees" in (two / "paper/two/README.md").read_text()

    before = stamps(two / "paper")
    here = basil(*words, "--draw-only")
    assert here.code == 0
    assert (two / "paper/two/figure.png").exists()
    assert stamps(two / "paper") == before
    assert "expected" in here.out
    assert [v for v in here.out.splitlines() if "expected" in v] == [
        v for v in there.stdout.splitlines() if "expected" in v
    ]


def agreed(folder: Path, name: str) -> dict[str, str]:
    facts = json.loads((folder / name / "reproduction.json").read_text())
    return {f"{v['panel']}: {v['expected']}": v["outcome"] for v in facts["verdicts"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fig6", "fig13"])
def test_a_figure_of_the_paper_at_its_quick_size(basil, tiny, name):
    assert basil("reproduce", name, "--quick", "--out", "q").code == 0
    found = agreed(tiny / "q", name)
    leads = [verdict for says, verdict in found.items() if "Basil" in says and "points" in says]
    assert leads
    assert set(leads) == {"agrees"}  # Basil is 10 points above UBAR in every panel


@pytest.mark.figures
@pytest.mark.parametrize("name", [name for name in figures() if name.startswith("fig")])
def test_every_figure_at_its_quick_size(basil, tiny, name):
    """All panels drawn, every expectation judged: `pytest -m figures`, some minutes."""
    assert basil("reproduce", name, "--quick", "--out", "q").code == 0
    assert set(agreed(tiny / "q", name).values()) <= {"agrees", "differs"}
    assert (tiny / "q" / name / "figure.svg").exists()
