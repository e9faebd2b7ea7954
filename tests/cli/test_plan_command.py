"""basil plan and basil calibrate: the paper's numbers from the command line, and refusals."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from basil.cli.plan import PARAMETERS
from basil.experiment.calibrate import CLASSES, SHAPES
from basil.learning.models import MODELS

PAGE = Path(__file__).parents[2] / "docs" / "research" / "paper.md"
RING = ["--nodes", 100, "--byzantine", 33]
# With S = 6 and a model of one megabit on a link of one megabit a second, every T is one second.
UNIT = {"forward": 1 / 6, "step": 1}
UNITS = ["--times", "unit.json", "--model", 31_250, "--bandwidth", 1, "--rounds", 1]


@pytest.fixture
def plan(basil, tiny):
    (tiny / "unit.json").write_text(json.dumps(UNIT))

    def command(*words):
        answer = basil("plan", *words, "--json")
        assert (answer.code, answer.err) == (0, "")
        return answer.json

    return command


# -- the paper's numbers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connectivity", "printed", "bound", "exact"),
    [
        (15, 4e-7, 4.09e-7, 3.23e-7),
        (10, 5.34e-4, 5.35e-4, 3.98e-4),
        (6, 0.09, 0.0929, 0.0654),
    ],
)
def test_proposition_2(plan, connectivity, printed, bound, exact):
    risk = plan(*RING, "--connectivity", connectivity)["ring"]["risk"]
    assert risk["bound"] == pytest.approx(bound, rel=2e-3)
    assert risk["bound"] == pytest.approx(printed, rel=0.04)  # near what the text has
    assert risk["exact"] == pytest.approx(exact, rel=2e-3)


def test_two_predecessors_fail_in_all_trials(plan):
    risk = plan(*RING, "--connectivity", 2, "--simulate", 500)["ring"]["risk"]
    assert risk["bound"] == pytest.approx(10.7, rel=5e-3)
    assert 1 - risk["exact"] == pytest.approx(7.2e-8, rel=0.01)
    assert risk["simulated"]["estimate"] == 1


@pytest.mark.parametrize(("connectivity", "bound"), [(10, 1.17e-6), (7, 5.0e-4)])
def test_proposition_5(plan, connectivity, bound):
    ring = ["--nodes", 400, "--byzantine", 60, "--groups", 4, "--connectivity", connectivity]
    risk = plan(*ring)["grouped"]["risk"]
    assert risk["bound"] == pytest.approx(bound, rel=5e-3)
    assert 0.5 * bound < risk["exact"] <= risk["union"] <= risk["bound"]


@pytest.mark.parametrize(("groups", "connectivity", "union"), [(5, 19, 5.2e-10), (10, 9, 1.5e-3)])
def test_case_1(plan, groups, connectivity, union):
    found = plan(*RING, "--groups", groups, "--connectivity", connectivity)["grouped"]["risk"]
    assert found["union"] == pytest.approx(union, rel=0.05)


def test_proposition_3(plan):
    acds = plan(*RING, "--connectivity", 10, "--groups", 4)["acds"]
    assert acds["bits"] == pytest.approx(76.685e6)  # text: ~75 Mbit
    assert acds["seconds"] == pytest.approx(4.624375)  # text: 11 s
    assert acds["of_training"] == pytest.approx(0.041, abs=5e-4)  # §VI-A: 4 %


def test_larger_groups_share_at_a_higher_cost(plan):
    bits = [plan(*RING, "--connectivity", 4, "--groups", g)["acds"]["bits"] for g in (20, 10, 4, 1)]
    assert [round(each / 1e6, 1) for each in bits] == [64.4, 67.5, 76.7, 122.6]


def test_proposition_4_and_the_ratio_of_16_groups_to_one(plan):
    def grouped(nodes, groups):
        ring = ["--nodes", nodes, "--byzantine", 0, "--groups", groups, "--connectivity", 6]
        return plan(*ring, *UNITS)["grouped"]

    sixteen, one = grouped(400, 16), grouped(25, 1)
    assert sixteen["turn"] / one["turn"] == pytest.approx(2.45, abs=5e-3)  # text: 1.5
    assert sixteen["printed"] / one["printed"] == pytest.approx(2.28, abs=5e-3)
    assert sum(sixteen["stages"].values()) == pytest.approx(sixteen["turn"])


def test_table_3_and_a_round_of_basil(plan):
    found = plan(*RING, "--connectivity", 10, "--rounds", 1)
    assert found["link"] == pytest.approx(3.766592 / 100)  # a model has 3.77 Mbit (text: 3.6)
    assert found["turn"]["bound"] / 100 - found["link"] == pytest.approx(0.025)
    assert found["ubar"]["computation"] == pytest.approx(0.047)
    assert found["turn"]["bound"] == pytest.approx(6.267, abs=1e-3)
    assert found["turn"]["recursion"] == pytest.approx(6.181, abs=1e-3)


def in_the_table():
    """Rows of docs/research/paper.md with a command and the number that it prints."""
    section = PAGE.read_text(encoding="utf-8").split("### The remarks' numbers", 1)[1]
    table = section.split("\n## ", 1)[0].split("\n### ", 1)[0]
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip()[1:-1].split("|")]
        if len(cells) == 5 and cells[1].startswith("`basil plan"):
            yield pytest.param(cells[1].strip("`"), cells[3].strip("`"), id=cells[0])


@pytest.mark.parametrize(("command", "ours"), list(in_the_table()))
def test_the_companion_prints_what_its_commands_print(basil, tiny, command, ours):
    (tiny / "unit.json").write_text(json.dumps(UNIT))
    answer = basil(*shlex.split(command)[1:])
    assert answer.code == 0
    words = re.sub(r"\s+", " ", answer.out)
    for part in ours.split("; "):
        assert part in words


def test_the_companion_has_a_command_for_every_remark():
    assert len(list(in_the_table())) == 16


# -- what else it tells -----------------------------------------------------------------------


def test_a_table_for_people(basil):
    out = basil("plan", *RING, "--failure", "1e-3", "--groups", 4, "--simulate", 50).out
    for said in ("connectivity S", "union bound", "simulated", "Basil+", "UBAR", "ACDS", "G = 2"):
        assert said in out
    assert "smallest for 0.001; by the bound: 10" in out


def test_a_million_nodes(plan):
    found = plan("--nodes", 1_000_000, "--byzantine", 330_000, "--failure", "1e-9")
    assert (found["ring"]["connectivity"], found["ring"]["by_bound"]) == (31, 32)
    assert 0 < found["ring"]["risk"]["exact"] <= 1e-9


def test_the_worst_case(plan):
    round_ = plan(*RING, "--worst-case", "--dropouts", 5)["ring"]["round"]
    assert (round_["models_stored"], round_["messages_sent"]) == (34, 39)


def test_figures(basil, tiny):
    answer = basil("plan", *RING, "--plot", "figures")
    names = {path.name for path in (tiny / "figures").iterdir()}
    assert names == {"failure.png", "failure.svg", "groups.png", "groups.svg"}
    assert answer.out.count("figure  figures/") == 4


def test_the_names_of_networks_stand_for_their_parameters():
    for name, count in PARAMETERS.items():
        network = MODELS[name](SHAPES[name], CLASSES)
        assert sum(p.numel() for p in network.parameters()) == count


def test_it_does_without_pytorch():
    """And so without its seconds of import."""
    code = (
        "import sys; from basil.cli import main;"
        " main(['plan', '--nodes', '100', '--byzantine', '33']);"
        " assert not {'torch', 'numpy', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


# -- the simulator's clock --------------------------------------------------------------------


@pytest.mark.parametrize("scoring", ["turn", "arrival"])
def test_a_run_of_basil_takes_the_planned_time(basil, plan, tiny, scoring):
    times = {"forward": 3, "step": 5}
    clock = [f"time.{key}={value}.0" for key, value in times.items()]
    clock += ["time.megabits=0.001", f"scheme.scoring={scoring}", "attack.name=none"]
    ran = basil("run", "tiny.toml", "--out", "r", "--json", *(w for c in clock for w in ("-s", c)))
    (tiny / "times.json").write_text(json.dumps(times))
    words = ["--connectivity", 2, "--rounds", 4, "--bandwidth", 0.001, "--times", "times.json"]
    planned = plan("--nodes", 5, "--byzantine", 1, *words, "--model", parameters(tiny / "r"))
    assert ran.json["virtual_seconds"] == pytest.approx(planned[scoring]["last_turn"])


def test_a_run_of_ubar_takes_the_planned_time(basil, plan, tiny):
    times = {"forward": 3, "step": 5, "distance": 7, "average": 11}
    clock = [f"time.{key}={value}.0" for key, value in times.items()]
    clock += ["time.megabits=0.001", "scheme.name=ubar", "graph.name=complete", "attack.name=none"]
    ran = basil("run", "tiny.toml", "--out", "r", "--json", *(w for c in clock for w in ("-s", c)))
    (tiny / "times.json").write_text(json.dumps(times))
    words = ["--connectivity", 4, "--rounds", 4, "--bandwidth", 0.001, "--times", "times.json"]
    planned = plan("--nodes", 5, "--byzantine", 1, *words, "--model", parameters(tiny / "r"))
    assert ran.json["virtual_seconds"] == pytest.approx(planned["ubar"]["total"])


def parameters(folder):
    with safe_open(folder / "models.safetensors", framework="pt") as file:
        return file.get_tensor("node-0").numel()


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--nodes 1 --byzantine 0", "nodes = 1"),
        ("--nodes 10 --byzantine 10", "0 to 9 can be Byzantine"),
        ("--nodes 10 --byzantine -1", "0 to 9 can be Byzantine"),
        ("--nodes 10 --byzantine 9", "at most 8 can be Byzantine"),
        ("--nodes 10 --byzantine 3 --connectivity 10", "0 to 9 predecessors"),
        ("--nodes 10 --byzantine 3 --connectivity 0", "connectivity = 0"),
        ("--nodes 10 --byzantine 3 --groups 0", "1 to 10 groups"),
        ("--nodes 10 --byzantine 3 --groups 11", "1 to 10 groups"),
        ("--nodes 10 --byzantine 3 --groups 3", "divisor of 10"),
        ("--nodes 10 --byzantine 3 --groups 10", "stay alone"),
        ("--nodes 10 --byzantine 3 --groups 5", "choose fewer groups"),
        ("--nodes 10 --byzantine 3 --groups 5 --connectivity 2", "ring of 2 has 0 to 1"),
        ("--nodes 10 --byzantine 3 --failure 0", "between 0 and 1"),
        ("--nodes 10 --byzantine 3 --failure 1", "between 0 and 1"),
        ("--nodes 10 --byzantine 3 --failure nan", "between 0 and 1"),
        ("--nodes 10 --byzantine 3 --bandwidth 0", "bandwidth above 0"),
        ("--nodes 10 --byzantine 3 --bandwidth -5", "bandwidth above 0"),
        ("--nodes 10 --byzantine 3 --bandwidth nan", "bandwidth above 0"),
        ("--nodes 10 --byzantine 3 --dropouts -1", "dropouts = -1"),
        ("--nodes 10 --byzantine 3 --dropouts 9", "has only 9"),
        ("--nodes 10 --byzantine 3 --rounds 0", "rounds = 0"),
        ("--nodes 10 --byzantine 3 --ring-rounds 0", "ring_rounds = 0"),
        ("--nodes 10 --byzantine 3 --share 0", "share = 0"),
        ("--nodes 10 --byzantine 3 --share 1.5", "share = 1.5"),
        ("--nodes 10 --byzantine 3 --batches 0", "batches = 0"),
        ("--nodes 10 --byzantine 3 --local-samples 0", "local_samples = 0"),
        ("--nodes 10 --byzantine 3 --sample-kbits -1", "sample_kilobits = -1"),
        ("--nodes 10 --byzantine 3 --model resnet", "--model resnet: it must be cifar-cnn"),
        ("--nodes 10 --byzantine 3 --model 0", "parameters = 0"),
        ("--nodes 10 --byzantine 3 --simulate -1", "trials = -1"),
        ("--nodes 10 --byzantine 9 --worst-case", "needs S = 10"),
        ("--nodes 10 --byzantine 3 --groups 2 --worst-case --connectivity 3", "only S = 4 or more"),
        ("--nodes 10 --byzantine 4 --groups 2 --worst-case", "one of 5 nodes has only 4"),
        ("--nodes 10 --byzantine 3 --worst-case --failure 0.1", "nothing is left to chance"),
        ("--nodes 10 --byzantine 3 --times absent.json", "cannot be read"),
        ("--nodes 10 --byzantine 3 --times tiny.toml", "is no JSON file"),
        ("--nodes 10 --byzantine 3 --plot tiny.toml/x", "cannot be written"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(refused, words, said):
    assert said in refused("plan", *words.split())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1]", "by name"),
        ('{"step": 1}', "forward is missing"),
        ('{"forward": "fast", "step": 1}', "forward = 'fast'"),
        ('{"forward": -1, "step": 1}', "forward = -1"),
    ],
)
def test_times_that_are_none_are_refused(refused, tiny, content, said):
    (tiny / "times.json").write_text(content)
    assert said in refused("plan", *RING, "--times", "times.json")


# -- calibrate --------------------------------------------------------------------------------


def test_calibrate_measures_what_plan_takes(basil, plan, tiny):
    words = ["--model", "mlp", "--batch", 4, "--connectivity", 3]
    found = basil("calibrate", *words, "--json", "--save", "times.json").json
    assert found["parameters"] == PARAMETERS["mlp"]
    for part in ("forward", "step", "distance", "average", "hash", "serialise", "deserialise"):
        assert 0 < found[part] < 10
    assert json.loads((tiny / "times.json").read_text()) == found
    planned = plan(*RING, "--times", "times.json", "--connectivity", 10, "--rounds", 1)
    assert planned["setting"]["parameters"] == PARAMETERS["mlp"]
    turn = planned["link"] + 10 * found["forward"] + found["step"]
    assert planned["turn"]["bound"] == pytest.approx(100 * turn)


def test_calibrate_prints_table_3_beside_the_papers(basil):
    out = basil("calibrate", "--model", "mlp", "--batch", 4, "--connectivity", 3).out
    lines = {line.split("  ")[0]: line.split() for line in out.splitlines() if line}
    assert lines["Basil, Table III"][-5:] == ["0.019", "–", "–", "0.006", "0.025"]
    assert lines["UBAR, Table III"][-5:] == ["0.012", "0.027", "0.002", "0.006", "0.047"]
    here = [float(part) for part in lines["UBAR, here"][-5:]]
    assert sum(here[:-1]) == pytest.approx(here[-1], abs=5e-5)
    assert {"Basil, here", "SHA-256"} <= set(lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--model softmax", "one of cifar-cnn, mlp"),
        ("--batch 0", "--batch 0"),
        ("--connectivity 0", "--connectivity 0"),
        ("--threads 0", "--threads 0"),
        ("--device abacus", "it must be auto, cpu, cuda"),
        ("--model mlp --batch 2 --save absent/times.json", "cannot be written"),
    ],
)
def test_what_cannot_be_calibrated(refused, words, said):
    assert said in refused("calibrate", *words.split())


def test_calibrate_says_what_it_leaves_out(capsys):
    from basil.cli import main

    with pytest.raises(SystemExit):
        main(["calibrate", "--help"])
    assert "link is not measured" in re.sub(r"\s+", " ", capsys.readouterr().out)
