"""basil compare: all combinations, each once, kept when asked again."""

import json

import pytest

PLAN = ["--schemes", "basil", "r-plain", "--attacks", "none", "gaussian", "--seeds", "3", "4"]


def stamps(folder):
    return {
        path: path.stat().st_mtime_ns
        for run in folder.iterdir()
        if (run / "run.json").exists()
        for path in [run, *run.iterdir()]
    }


def table(answer):
    """The lines of the table, from its header to the first empty line."""
    lines = answer.out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("attack "))
    end = lines.index("", start) if "" in lines[start:] else len(lines)
    return lines[start:end]


def test_a_comparison_asked_for_again_computes_nothing_and_prints_the_same(basil, refused, tiny):
    words = ["compare", "tiny.toml", "--schemes", "basil", "--attacks", "none", "gaussian"]
    words += ["--jobs", "1", "--out", "both", "--no-report"]
    first = basil(*words)
    assert first.code == 0
    assert {path.name for path in (tiny / "both").iterdir()} == {
        "cases.json",
        "basil-none-seed0",
        "basil-gaussian-seed0",
    }
    header, _, *rows = table(first)
    assert header.split()[:3] == ["attack", "scheme", "seed"]
    assert [row.split("  ")[0] for row in rows] == ["No attack", "Gaussian"]

    before = stamps(tiny / "both")
    again = basil(*words)
    assert table(again) == table(first)
    assert stamps(tiny / "both") == before

    twice = basil(*words, "--seeds", "0", "0", "--json")  # a case named twice is one case
    assert [case["attack"] for case in twice.json] == ["none", "gaussian"]

    assert again.err == ""
    facts = tiny / "both/basil-none-seed0/run.json"
    facts.write_text(facts.read_text().replace('"code": "', '"code": "another'))
    before = stamps(tiny / "both")
    [warning] = basil(*words).err.splitlines()
    assert warning.startswith("warning: 1 of 2 runs were made or begun by other code than this")
    assert "both/basil-none-seed0" in warning
    assert stamps(tiny / "both") == before

    for change in ("learning.rate=0.5", "time.step=5"):
        sentence = refused(*words, "-s", change)
        assert "both/basil-none-seed0 holds a run with another recipe: choose" in sentence
    assert stamps(tiny / "both") == before


def test_a_comparison_keeps_what_run_has_made_and_counts_it_like_its_own(basil, tiny):
    """The same folder layout, so a case may as well have been run on another machine."""
    words = ["-s", "record.models=false"]
    alone = basil("run", "tiny.toml", *words, "--out", "all/basil-gaussian-seed0", "--json").json
    before = stamps(tiny / "all")
    cases = ["--schemes", "basil", "--attacks", "gaussian", "--out", "all"]
    found = basil("compare", "tiny.toml", *words, *cases, "--json")
    assert found.json == [alone]
    assert stamps(tiny / "all") == before
    assert "Gaussian" in (tiny / "all/report.html").read_text()


@pytest.mark.slow
def test_schemes_times_attacks_times_seeds_in_two_processes(basil, tiny):
    words = ["compare", "tiny.toml", *PLAN, "--jobs", "2", "--out", "all", "--no-report"]
    first = basil(*words)
    assert first.code == 0
    names = {
        f"{scheme}-{attack}-seed{seed}"
        for scheme in ("basil", "r-plain")
        for attack in ("none", "gaussian")
        for seed in (3, 4)
    }
    assert {path.parent.name for path in (tiny / "all").glob("*/summary.json")} == names
    _, _, *rows = table(first)
    assert len(rows) == 4  # the seeds share a row
    assert all("3, 4" in row for row in rows)

    before = stamps(tiny / "all")
    again = basil(*words)
    assert table(again) == table(first)
    assert stamps(tiny / "all") == before

    # In whatever order and process a case was computed, alone it gives the same.
    summaries = basil(*words, "--json").json
    assert [case["folder"].split("/")[1] for case in summaries][:2] == [
        "basil-none-seed3",
        "basil-none-seed4",
    ]
    words = ["-s", "scheme.name=r-plain", "-s", "seed=4", "--json", "--out", "alone"]
    alone = basil("run", "tiny.toml", *words).json
    there = json.loads((tiny / "all/r-plain-gaussian-seed4/summary.json").read_text())
    assert there["model_sha256"] == alone["model_sha256"]
