"""What each command prints, writes and refuses."""

import csv
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from safetensors import safe_open

from basil import __version__
from basil.attack import ATTACKS
from basil.cli import KINDS, main
from basil.cli.listing import TABLES
from basil.recipe import load, shipped

FILES = {
    "metrics.jsonl",
    "models.safetensors",
    "recipe.toml",
    "run.json",
    "selections.csv",
    "summary.json",
}
PROMISED = {
    "": ["scheme", "attack", "dataset", "partition", "nodes", "byzantine", "connectivity"],
    "accuracy": ["worst", "mean"],
    "selection": ["byzantine", "nearest"],
    "messages": ["count", "bytes"],
}
PROMISED[""] += ["rounds", "local_steps", "seed", "seconds", "virtual_seconds", "model_sha256"]


def contents(folder):
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()}


# -- run --------------------------------------------------------------------------------------


def test_a_run_leaves_what_is_promised(basil, tiny):
    answer = basil("run", "tiny.toml", "--out", "here")
    assert answer.code == 0
    assert {path.name for path in (tiny / "here").iterdir()} == FILES

    summary = json.loads((tiny / "here/summary.json").read_text())
    for part, keys in PROMISED.items():
        assert all((summary[part] if part else summary)[key] is not None for key in keys)
    said: dict[str, object] = {"scheme": "basil", "attack": "gaussian"}
    said |= {"dataset": "synthetic", "partition": "iid"}
    said |= {"nodes": 5, "byzantine": 1, "connectivity": 2, "rounds": 4, "local_steps": 1}
    assert said | {"seed": 0} == {key: summary[key] for key in (*said, "seed")}

    metrics = [json.loads(x) for x in (tiny / "here/metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in metrics] == [0, 1, 2, 3, 4]
    assert metrics[-1]["accuracy"] == summary["accuracy"]

    facts = json.loads((tiny / "here/run.json").read_text())
    benign = set(range(5)) - set(facts["byzantine"])
    with safe_open(tiny / "here/models.safetensors", framework="pt") as file:
        assert set(file.keys()) == {f"node-{node}" for node in benign}

    assert load("here/recipe.toml").attack == load("tiny.toml").attack
    assert "here" in answer.out
    assert "Gaussian" in answer.out


def test_selections_are_one_row_for_each_turn_and_the_summary_counts_them(basil, tiny):
    summary = basil("run", "tiny.toml", "--out", "here", "--json").json
    facts = json.loads((tiny / "here/run.json").read_text())
    order, byzantine = facts["order"], set(facts["byzantine"])
    rows = list(csv.DictReader((tiny / "here/selections.csv").read_text().splitlines()))
    turns = [(int(row["round"]), int(row["node"])) for row in rows]
    assert turns == [(k, node) for k in range(1, 5) for node in order]
    assert all((int(row["node"]) in byzantine) == (row["byzantine"] == "1") for row in rows)

    benign = [row for row in rows if row["byzantine"] == "0"]
    before = {node: str(order[place - 1]) for place, node in enumerate(order)}
    nearest = sum(row["chosen"] == before[int(row["node"])] for row in benign)
    lies = sum(row["chosen"] != "" and int(row["chosen"]) in byzantine for row in benign)
    assert summary["selection"]["nearest"] == nearest / len(benign)
    assert summary["selection"]["byzantine"] == lies / len(benign)


@pytest.mark.parametrize(("scheme", "heard"), [("basil", 3), ("r-plain", 1)])
@pytest.mark.parametrize("attack", ["none", "gaussian"])
def test_messages_are_those_of_algorithm_1(basil, scheme, heard, attack):
    """Each of N nodes sends its d parameters of 4 bytes to S successors in each of K rounds."""
    N, K, d = 6, 5, (20 + 1) * 5  # 20 features and a bias for each of 5 classes
    change = [f"ring.nodes={N}", f"scheme.rounds={K}", "ring.connectivity=3"]
    change += [f"scheme.name={scheme}", f"attack.name={attack}"]
    words = [word for text in change for word in ("-s", text)]
    summary = basil("run", "tiny.toml", *words, "--json").json
    assert summary["messages"] == {"count": N * K * heard, "bytes": N * K * heard * 4 * d}
    assert summary["connectivity"] == heard


def test_json_is_one_object_that_equals_the_summary_file(basil, tiny):
    answer = basil("run", "tiny.toml", "--json", "--out", "here")
    assert answer.out.count("\n") == 1
    summary = json.loads((tiny / "here/summary.json").read_text())
    assert answer.json == {**summary, "folder": "here"}


def test_warnings_go_to_stderr_and_do_not_stop_the_run(basil):
    answer = basil("run", "tiny.toml", "--json", "-s", "ring.byzantine=0")
    assert answer.code == 0
    assert answer.json["byzantine"] == 0
    assert answer.err.startswith("warning: attack 'gaussian' has nobody to carry it out")


def test_the_seed_decides_everything_and_everything_depends_on_it(basil):
    hashes = [
        basil("run", "tiny.toml", "--json", "-s", f"seed={seed}").json["model_sha256"]
        for seed in (1, 1, 2)
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_models_are_left_out_on_request(basil, tiny):
    basil("run", "tiny.toml", "--out", "here", "-s", "record.models=false")
    assert {path.name for path in (tiny / "here").iterdir()} == FILES - {"models.safetensors"}


def test_a_run_without_out_gets_a_free_folder_under_runs(basil, tiny):
    folders = [basil("run", "tiny.toml", "--json").json["folder"] for _ in range(3)]
    stem = "runs/synthetic-basil-gaussian-seed0"
    assert folders == [stem, f"{stem}-2", f"{stem}-3"]
    assert all((tiny / folder / "summary.json").is_file() for folder in folders)


def test_a_run_that_is_there_is_never_overwritten(basil, refused, tiny):
    basil("run", "tiny.toml", "--out", "here")
    before = contents(tiny / "here")
    sentence = refused("run", "tiny.toml", "--out", "here", "-s", "seed=1")
    assert "here holds a run already: choose another --out" in sentence
    assert contents(tiny / "here") == before


def test_measured_times_are_written_down_as_what_was_measured(basil, tiny):
    answer = basil("run", "tiny.toml", "--out", "m", "-s", "time.step=measured", "--json")
    assert answer.json["virtual_seconds"] > 0
    assert 0 < tomllib.loads((tiny / "m/recipe.toml").read_text())["time"]["step"] < 10


# -- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "which recipe?"),
        (["run", "absent.toml"], "recipe 'absent.toml': there is no such file"),
        (["run", "tiny.toml", "-s", "ring.nodes"], "section.key=value"),
        (["run", "tiny.toml", "-s", "ring.nods=3"], "did you mean 'nodes'? (tiny.toml with -s"),
        (["run", "tiny.toml", "-s", "ring.connectivity=5"], "has only 4 predecessors"),
        (["run", "tiny.toml", "-s", "attack.name=gausian"], "did you mean 'gaussian'?"),
        (["run", "tiny.toml", "-s", "learning.batch=41"], "no node has more than 40 samples"),
        (["run", "tiny.toml", "-s", "learning.model=linear"], "does not suit classification"),
        (["run", "tiny.toml", "-s", "data.task=classify"], "task = 'classify' does not exist"),
        (["run", "tiny.toml", "-s", "ring.nodes=300"], "only 200 samples"),
        (["run", "tiny.toml", "--device", "abacus"], "--device abacus: it must be auto, cpu, cuda"),
        (["run", "tiny.toml", "--device", "meta"], "--device meta: it must be auto, cpu, cuda"),
        (["run", "tiny.toml", "--device", "cuda:99"], "--device cuda:99: PyTorch finds"),
        (
            ["run", "tiny.toml", "-s", "attack.name=garbage", "-s", "attack.kind=soup"],
            "attack.kind = 'soup': one of mixed, nan",
        ),
        (["run", "tiny.toml", "--out", "tiny.toml"], "tiny.toml cannot be written"),
        (["compare", "tiny.toml", "--schemes", "basill"], "did you mean 'basil'?"),
        (["compare", "tiny.toml", "--attacks", "hiden"], "did you mean 'hidden'?"),
        (["data", "get", "minst"], "did you mean 'mnist'?"),
        (["data", "where", "minst"], "did you mean 'mnist'?"),
    ],
    ids=" ".join,
)
def test_wrong_input_is_refused_in_one_line_and_leaves_nothing(refused, tiny, words, said):
    assert said in refused(*words)
    assert [path.name for path in tiny.iterdir()] == ["tiny.toml"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["runn"],
        ["run", "demo", "--threads", "-1"],
        ["run", "demo", "--threads", "two"],
        ["list", "things"],
    ],
)
def test_a_wrong_command_line_exits_2_with_the_usage(tiny, capsys, words):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("usage: basil")
    assert "_whole" not in err  # the name of a function is no help


# -- list and data ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_list_names_everything_a_recipe_can_name(basil, kind):
    known = set(shipped()) if kind == "recipes" else set(TABLES[kind])
    if kind == "attacks":
        known.add("none")
    lines = basil("list", kind).out.splitlines()
    assert {line.split()[0] for line in lines} == known
    as_json = basil("list", kind, "--json").json
    assert set(as_json) == known
    assert all(as_json.values())  # each with a sentence about it
    assert all(as_json[line.split()[0]] in line for line in lines)


@pytest.mark.parametrize("kind", TABLES)
def test_list_shows_all_about_one_entry_with_its_options(basil, kind):
    for name in TABLES[kind]:
        table = TABLES[kind]
        out = basil("list", kind, name).out
        assert out.startswith(f"{name}\n\n{table.summary(name)}")
        for key, value in table.options(name).items():
            assert f"\n  {key} = {json.dumps(value)}\n" in out
        assert basil("list", kind, name, "--json").json["options"] == table.options(name)


def test_list_shows_the_head_of_a_recipe_and_what_no_attack_is(basil, refused):
    assert "\n    basil compare demo " in basil("list", "recipes", "demo").out
    assert "Nobody lies" in basil("list", "attacks", "none").out
    assert "did you mean 'hidden'?" in refused("list", "attacks", "hiden")
    assert "'demo'" in refused("list", "recipes", "dmeo")


def test_list_recipes_has_whole_sentences(basil):
    for name, text in basil("list", "recipes", "--json").json.items():
        assert text.endswith((".", ")")), name


def test_a_wrong_recipe_is_answered_with_the_three_nearest_names(refused):
    sentence = refused("run", "cifar20")
    assert "the nearest names are 'cifar10', 'cifar100', 'cifar10-sorted' (basil list" in sentence


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"basil {__version__}\n"


def test_what_is_wrong_is_broken_between_words_where_the_terminal_is_narrow(
    basil, capsys, monkeypatch
):
    whole = basil("reproduce", "fig2").err
    monkeypatch.setenv("COLUMNS", "60")
    err = basil("reproduce", "fig2").err
    assert max(map(len, err.splitlines())) <= 60
    assert err.split() == whole.split()
    with pytest.raises(SystemExit):
        main(["list", "things"])
    err = capsys.readouterr().err
    assert max(map(len, err.splitlines())) <= 60
    assert "invalid choice: 'things'" in " ".join(err.split())


def test_data_where_tells_what_is_here_and_how_to_get_the_rest(basil, tiny, monkeypatch):
    monkeypatch.setenv("BASIL_DATA", str(tiny / "sets"))
    lines = {line.split()[0]: line for line in basil("data", "where").out.splitlines()}
    assert set(lines) == set(TABLES["datasets"])
    assert "comes with Basil" in lines["digits"]
    assert str(tiny / "sets" / "mnist") in lines["mnist"]
    assert "absent: basil data get mnist" in lines["mnist"]
    assert basil("data", "where", "mnist").out.splitlines() == [lines["mnist"]]


def test_there_is_nothing_to_fetch_for_what_comes_with_basil(basil):
    answer = basil("data", "get", "digits")
    assert answer.code == 0
    assert "nothing to fetch" in answer.out


def test_a_run_on_a_data_set_that_is_not_here_says_how_to_get_it(refused, tiny, monkeypatch):
    monkeypatch.setenv("BASIL_DATA", str(tiny / "sets"))
    sentence = refused("run", "tiny.toml", "-s", 'data={dataset="mnist"}')
    assert "basil data get mnist" in sentence
    assert "BASIL_DATA" in sentence
    assert not (tiny / "runs").exists()


# -- report -----------------------------------------------------------------------------------


def test_report_writes_a_page_for_a_run(basil, tiny):
    basil("run", "tiny.toml", "--out", "one/here")
    answer = basil("report", "one", "--out", "pages")
    assert answer.code == 0
    assert "Gaussian" in (tiny / "pages/report.html").read_text()
    assert {"report.html", "figures"} <= {path.name for path in (tiny / "pages").iterdir()}
    assert "pages/report.html" in answer.out
    summary = json.loads((tiny / "one/here/summary.json").read_text())
    found = basil("report", "one", "--out", "pages", "--json").json
    assert found == [{**summary, "folder": "one/here"}]


def test_report_has_schemes_in_the_order_of_the_list(basil):
    for folder, scheme in {"all/a": "r-plain", "all/b": "basil"}.items():
        basil("run", "tiny.toml", "-s", f"scheme.name={scheme}", "--out", folder)
    found = basil("report", "all", "--out", "pages", "--json").json
    assert [run["scheme"] for run in found] == ["basil", "r-plain"]


@pytest.mark.parametrize("nonsense", ["absent", "tiny.toml", "."])
def test_report_refuses_what_is_no_run(refused, nonsense):
    assert f"{nonsense} holds no run" in refused("report", nonsense)


def test_every_attack_can_be_run_by_its_name(basil):
    for attack in ATTACKS:
        words = ["-s", f"attack.name={attack}", "-s", "attack.start=1", "-s", "scheme.rounds=2"]
        if attack == "backdoor":  # a patch wants images
            words += ["-s", "data.dataset=digits"]
        if ATTACKS[attack].needs_sharing:
            words += ["-s", "sharing.alpha=0.5"]
        if attack in ("rescale", "permute", "ballast", "twins"):  # they want hidden units
            words += ["-s", "learning.model=mlp"]
        answer = basil("run", "tiny.toml", "--json", *words)
        assert (answer.code, answer.json["attack"]) == (0, attack)
        assert answer.json["byzantine"] == 1


def test_a_reader_that_stops_reading_is_no_mistake():
    """basil list attacks | head -1, whose pipe is closed before anything is written."""
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "basil", "list", "attacks"]
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_the_same_bits_and_the_fastest_kernels_exclude_each_other(refused, tiny):
    sentence = refused("run", "tiny.toml", "--deterministic", "--compile")
    assert "--deterministic and --compile do not go together" in sentence


@pytest.mark.filterwarnings("always")
def test_an_old_name_gets_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["run", "demo", "-s", "scheme.rule=trust", "-s", "scheme.kin=3.0"]
    assert main([*words, "-s", "scheme.rounds=1", "--out", str(tmp_path / "run")]) == 0
    assert "warning: scheme.kin is now scheme.lineage_ratio\n" in capsys.readouterr().err
