"""An attack in a file beside the recipe; and the sentence for everything that is no entry."""

import json
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

import basil
from basil import foreign, register
from basil.attack import ATTACKS
from basil.cli import main
from basil.experiment import Hooks, Interrupted, Simulation, set_up
from basil.learning.schedule import SCHEDULES
from basil.recipe import code_of, fingerprint, load, parse
from basil.table import Table

from other_package import RECIPE, block

LOCAL = RECIPE.replace("two-moons", "synthetic").replace("median-loss", "lowest-loss")
LOCAL = LOCAL.replace('"overshoot"', '"mine.py:overshoot"')
MINE = block("import basil\n\n\n@basil.declares")


def forget(folder):
    """As if nothing had been imported from here."""
    for name, module in list(sys.modules.items()):
        if str(folder) in (getattr(module, "__file__", None) or ""):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def _as_before(monkeypatch, tmp_path):
    """What one test has found, the next one finds anew."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(foreign, "_folders", [])
    monkeypatch.setattr(foreign, "_modules", [])
    monkeypatch.setattr(ATTACKS, "_foreign", {})
    monkeypatch.setattr(SCHEDULES, "_foreign", {})
    yield
    forget(tmp_path)


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A folder with a recipe and a file, which is not the one where we are."""
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "mine.py").write_text(MINE)
    (folder / "mine.toml").write_text(LOCAL)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.slow
def test_a_file_beside_the_recipe_is_run_in_processes_too(study, command):
    words = ("compare", study / "mine.toml", "--schemes", "basil", "--no-report", "--json")
    file, module = command(
        *words, "--attacks", "mine.py:overshoot", "mine:overshoot", "--jobs", "2", "--out", "cmp"
    ).json
    assert module["attack"] == "mine:overshoot"
    assert file["attack"] == "mine.py:overshoot"
    alone = Simulation(set_up(load(study / "mine.toml"))).run(study / "alone")
    assert file["model_sha256"] == alone["model_sha256"]
    facts = json.loads((study / "alone" / "run.json").read_text())
    assert list(facts["extensions"]) == ["attack mine.py:overshoot"]


@pytest.mark.slow
def test_resuming_takes_the_same_source_or_none(study, command):
    turns = iter(range(99))
    with pytest.raises(Interrupted):
        Simulation(set_up(load(study / "mine.toml"))).run(
            study / "run", Hooks(stop=lambda: next(turns) > 4)
        )
    shutil.copytree(study / "run", study / "later")
    whole = Simulation(set_up(load(study / "mine.toml"))).run(study / "whole")
    resumed = command("run", "--resume", study / "run", "--json").json
    assert resumed["model_sha256"] == whole["model_sha256"]
    (study / "mine.py").write_text(MINE + "# changed\n")
    refused = command("run", "--resume", study / "later")
    assert refused.code == 2
    assert "begun with another source of attack mine.py:overshoot" in refused.err


def test_the_fingerprint_is_of_the_source_too(study, monkeypatch):
    recipe = load(study / "mine.toml")
    before = fingerprint(recipe)
    monkeypatch.setattr(ATTACKS, "_foreign", {})
    forget(study)
    (study / "mine.py").write_text(MINE + "# changed\n")
    assert fingerprint(recipe) != before
    assert code_of(parse({})) == {}


def test_a_betrayal_may_turn_into_it(study):
    (study / "mine.toml").write_text(
        LOCAL.replace('"mine.py:overshoot"', '"betrayal"\nthen = "mine.py:overshoot"')
    )
    assert list(code_of(load(study / "mine.toml"))) == ["attack mine.py:overshoot"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere:x", "there is no module 'nowhere', neither installed nor in "),
        ("none.py:x", "there is no file 'none.py' in "),
        ("wrong.py:nothing", "wrong.py has no 'nothing'"),
        ("wrong.py:", "write it as module:attribute or file.py:attribute"),
        ("wrong.py:number", "it must be a function, not 3"),
        ("wrong.py:deaf", "it must be a function (view, *, options with defaults): too many"),
        ("wrong.py:plain", "write 'factor' after the *"),
        ("wrong.py:bare", "missing a required argument: 'factor'"),
        ("wrong.py:listed", "option 'factor' is [1]; it must be a number, a string, true or false"),
        ("broken.py:x", "broken.py cannot be imported: ZeroDivisionError: division by zero"),
        (
            "needs.py:x",
            "needs.py cannot be imported: ModuleNotFoundError: No module named 'absent'",
        ),
        ("needs:x", "needs cannot be imported: ModuleNotFoundError: No module named 'absent'"),
        ("overshot", "does not exist; there are: "),
    ],
)
def test_what_is_wrong_is_one_sentence(name, sentence, study, capsys):
    (study / "broken.py").write_text("1 / 0\n")
    (study / "needs.py").write_text("import absent\n")
    (study / "wrong.py").write_text(
        "number = 3\n"
        "def deaf(): ...\n"
        "def plain(view, factor=1.0): ...\n"
        "def bare(view, *, factor): ...\n"
        "def listed(view, *, factor=[1]): ...\n"
    )
    code = main(["run", str(study / "mine.toml"), "-s", f"attack.name={name}"])
    said = capsys.readouterr().err
    assert code == 2
    assert said.startswith(f"basil: attack '{name}'")
    assert sentence in said
    assert said.count("\n") == 1


def test_what_is_registered_has_a_short_name(tmp_path):
    names: dict[str, object] = {"__name__": __name__}
    exec(block("import basil\nfrom basil import register"), names)
    tree = tomllib.loads(LOCAL.replace("mine.py:overshoot", "shout"))
    tree["learning"] |= {"schedule": "halving", "every": 1}
    result = basil.run(tree, out=tmp_path / "run")
    assert result.summary["attack"] == "shout"
    assert "shout" in ATTACKS
    assert foreign.whereabouts().modules == (__name__,)
    with pytest.raises(basil.UserError, match="rename it"):
        register.attack("gaussian")(lambda view: None)


def test_every_kind_has_a_decorator_and_a_group_of_its_own():
    from basil.cli import KINDS
    from basil.cli.listing import TABLES

    assert [table.group for table in TABLES.values()] == list(TABLES) == list(KINDS[:-1])
    singular = {table.kind.replace("data set", "dataset") for table in TABLES.values()}
    unregistered = {"rule for sensitive samples", "fault in sharing"}
    assert all(hasattr(register, kind) for kind in singular - unregistered)
    assert all(isinstance(table, Table) for table in TABLES.values())


def test_the_types_reach_whoever_annotates():
    assert (Path(basil.__file__).parent / "py.typed").exists()
