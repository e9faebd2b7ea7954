"""An attack, a rule and a data set of an installed package, in every command."""

import csv
import json
import shutil
import subprocess
import sys

import pytest

from other_package import RECIPE, block, environment


def test_list_shows_them(command, installed):
    rows = command("list", "rules", "--json", path=[installed]).json
    assert rows["median-loss"] == "The model whose loss is the median of the usable ones."
    assert "comes with another package" in command("data", "where", path=[installed]).out


@pytest.mark.slow
def test_one_that_cannot_be_loaded_hides_no_other(command, installed, tmp_path):
    shutil.copytree(installed, tmp_path / "site")
    (tmp_path / "site" / "my_pkg" / "attacks.py").write_text("import nonsense\n")
    rows = command("list", "attacks", "--json", path=[tmp_path / "site"]).json
    assert "cannot be imported: ModuleNotFoundError" in rows["overshoot"]
    assert "gaussian" in rows


def test_run_by_short_name_and_by_module(command, installed):
    short = command("run", "mine.toml", "--json", path=[installed]).json
    long = command(
        *("run", "mine.toml", "--json", "-s", "attack.name=my_pkg.attacks:overshoot"),
        *("-s", "attack.factor=3", "-s", "scheme.rule=my_pkg.rules:median_loss"),
        *("-s", "data.dataset=my_pkg.data:two_moons"),
        path=[installed],
    ).json
    assert short["attack"] == "overshoot"
    assert short["model_sha256"] == long["model_sha256"]


def test_compare_in_processes_is_run_one_by_one(command, installed, tmp_path):
    alone = command("run", "mine.toml", "--json", path=[installed]).json
    words = ("compare", "mine.toml", "--schemes", "basil", "--jobs", "2", "--no-report", "--json")
    attacks = ("--attacks", "none", "overshoot", "my_pkg.attacks:overshoot", "--out", "cmp")
    runs = command(*words, *attacks, path=[installed]).json
    assert [run["attack"] for run in runs] == ["none", "overshoot", "my_pkg.attacks:overshoot"]
    assert runs[1]["model_sha256"] == alone["model_sha256"]
    assert (tmp_path / "cmp" / "basil-my_pkg.attacks-overshoot-seed1").is_dir()


@pytest.mark.slow
def test_sweep_runs_anew_what_other_source_has_made(command, installed, tmp_path):
    (tmp_path / "sweep.toml").write_text(
        RECIPE + '[sweep]\nseeds = [1]\n[sweep.grid]\n"attack.name" = ["none", "overshoot"]\n'
    )
    shutil.copytree(installed, tmp_path / "site")

    def sweep() -> list[dict[str, str]]:
        done = command("sweep", "sweep.toml", "--out", "all", path=[tmp_path / "site"])
        assert done.code == 0, done.err
        return list(csv.DictReader((tmp_path / "all" / "sweep.csv").read_text().splitlines()))

    first = sweep()
    source = tmp_path / "site" / "my_pkg" / "attacks.py"
    source.write_text(source.read_text().replace("factor * (", "-factor * ("))
    second = sweep()
    assert first[0]["run"] != second[0]["run"]  # its data set is the package's, too
    assert first[1]["model_sha256"] != second[1]["model_sha256"]
    assert len({row["run"] for row in first + second}) == 4


@pytest.mark.slow
def test_compare_keeps_no_run_of_another_source(command, installed, tmp_path):
    shutil.copytree(installed, tmp_path / "site")
    words = ("compare", "mine.toml", "--schemes", "basil", "--attacks", "overshoot")
    assert command(*words, "--no-report", "--out", "cmp", path=[tmp_path / "site"]).code == 0
    (tmp_path / "site" / "my_pkg" / "more.py").write_text("# what it imports counts, too\n")
    again = command(*words, "--no-report", "--out", "cmp", path=[tmp_path / "site"])
    assert again.code == 2
    assert "another source of data set two-moons, rule median-loss, attack overshoot" in again.err


def test_a_worker_elsewhere_must_have_the_same_source(installed, tmp_path):
    """What Ray would call on another machine."""
    script = tmp_path / "worker.py"
    script.write_text(
        "import json, sys, tomllib\n"
        "from basil.experiment import Machine\n"
        "from basil.recipe import code_of, parse, to_tree\n"
        "from basil.many.worker import run_away\n"
        "recipe = parse(tomllib.load(open(sys.argv[1], 'rb')))\n"
        "tree, code = to_tree(recipe), code_of(recipe)\n"
        "(done, _), files = run_away((tree, code), Machine())\n"
        "(_, error), none = run_away((tree, {**code, 'attack overshoot': '0'}), Machine())\n"
        "print(json.dumps([done['attack'], 'summary.json' in files, error, none]))\n"
    )
    (tmp_path / "mine.toml").write_text(RECIPE)
    ended = subprocess.run(
        [sys.executable, script, tmp_path / "mine.toml"],
        env=environment(installed),
        capture_output=True,
        text=True,
        check=True,
    )
    attack, there, error, none = json.loads(ended.stdout)
    assert (attack, there, none) == ("overshoot", True, {})
    assert "has another source of attack overshoot" in error


@pytest.mark.slow
def test_sweep_on_ray(command, installed, tmp_path):
    pytest.importorskip("ray")
    (tmp_path / "sweep.toml").write_text(
        RECIPE + '[sweep]\nseeds = [1]\n[sweep.grid]\n"attack.name" = ["none", "overshoot"]\n'
    )
    for engine in ("pool", "ray"):
        words = ("sweep", "sweep.toml", "--engine", engine, "--out", engine)
        assert command(*words, path=[installed]).code == 0
    tables = [(tmp_path / engine / "sweep.csv").read_text() for engine in ("pool", "ray")]
    rows = [list(csv.DictReader(table.splitlines())) for table in tables]
    assert [row["model_sha256"] for row in rows[0]] == [row["model_sha256"] for row in rows[1]]


@pytest.mark.slow
def test_the_checks_of_the_document_pass(installed):
    code = block("from basil.testing import check_attack") + "\n\ntest_my_entries()\n"
    subprocess.run([sys.executable, "-c", code], env=environment(installed), check=True)
