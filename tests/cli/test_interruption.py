"""A run that is stopped, gently or not, ends as if it had not been."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from basil.experiment import Hooks, Interrupted, Simulation, set_up
from basil.recipe import load
from basil.record.run_folder import held

from cli_helpers import largest_file

# A node is away for a while, so that some of the interruptions fall into its absence.
LONG = ["scheme.rounds=60", "ring.connectivity=3", "ring.events=[{node=2,leaves=4,returns=25}]"]
KEEP_ALWAYS = ["record.checkpoint=0"]  # a checkpoint after every turn; this makes it slow, too


def changes(*texts):
    return [word for text in texts for word in ("-s", text)]


def result(folder):
    """All that a run has found out, without how long it took."""
    summary = json.loads((folder / "summary.json").read_text())
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for part in (summary, *metrics):
        del part["seconds"]
    return summary, metrics, (folder / "selections.csv").read_text()


def rounds_in(folder):
    try:
        return (folder / "metrics.jsonl").read_text().count("\n")
    except FileNotFoundError:
        return 0


def start_and_stop(folder, number, *words):
    """Run in another process, and send it a signal once some rounds are over."""
    command = [sys.executable, "-W", "error", "-m", "basil", "run", "tiny.toml", "--out", "broken"]
    process = subprocess.Popen(
        [*command, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 180
        while rounds_in(folder / "broken") < 6 and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(number)
        out, err = process.communicate(timeout=180)
    finally:
        process.kill()
        process.wait()
    assert not (folder / "broken/summary.json").exists(), "it was over before it could be stopped"
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("number", "attack"),
    [
        pytest.param(signal.SIGINT, "stale", id="Ctrl-C"),  # Byzantine nodes have a memory, too
        pytest.param(signal.SIGTERM, "gaussian", id="SIGTERM", marks=pytest.mark.slow),
    ],
)
def test_a_run_stopped_by_a_signal_says_how_to_go_on_and_ends_as_if_it_had_not_been(
    basil, tiny, number, attack
):
    words = changes(*LONG, f"attack.name={attack}")
    code, out, err = start_and_stop(tiny, number, *words, *changes(*KEEP_ALWAYS))
    assert code == 130
    assert out == ""
    lines = [line for line in err.splitlines() if not line.startswith("warning: ")]
    assert lines == ["stopped; go on with: basil run --resume broken"]

    assert basil("run", "--resume", "broken").code == 0
    assert basil("run", "tiny.toml", *words, "--out", "whole").code == 0
    assert result(tiny / "broken") == result(tiny / "whole")
    assert not (tiny / "broken/checkpoint.safetensors").exists()


def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(basil, tiny):
    words = changes(*LONG)
    code, _, _ = start_and_stop(tiny, signal.SIGKILL, *words, *changes(*KEEP_ALWAYS))
    assert code == -signal.SIGKILL
    # Killed in the middle of a line: what stands behind the checkpoint is cut off.
    with (tiny / "broken/selections.csv").open("a") as file:
        file.write("99,1")
    assert basil("run", "--resume", "broken", "--json").json["folder"] == "broken"
    assert basil("run", "tiny.toml", *words, "--out", "whole").code == 0
    assert result(tiny / "broken") == result(tiny / "whole")


@pytest.mark.parametrize("turn", [1, 7, 19])
def test_a_run_may_be_interrupted_again_and_again(basil, tiny, turn):
    """After each resumption it is stopped at once, `turn` times in all, and then let go."""
    experiment = set_up(load("tiny.toml"))
    with pytest.raises(Interrupted):
        Simulation(experiment).run(tiny / "broken", Hooks(stop=lambda: True))
    for _ in range(turn - 1):
        with pytest.raises(Interrupted):
            Simulation(set_up(load("tiny.toml"))).run(
                tiny / "broken", Hooks(stop=lambda: True), resume=True
            )
    rows = (tiny / "broken/selections.csv").read_text().splitlines()
    assert len(rows) == 1 + turn
    assert basil("run", "--resume", "broken").code == 0
    assert basil("run", "tiny.toml", "--out", "whole").code == 0
    assert result(tiny / "broken") == result(tiny / "whole")


def test_whoever_goes_on_with_other_code_is_told(basil, tiny):
    with pytest.raises(Interrupted):
        Simulation(set_up(load("tiny.toml"))).run(tiny / "broken", Hooks(stop=lambda: True))
    facts = tiny / "broken/run.json"
    facts.write_text(facts.read_text().replace('"code": "', '"code": "another'))
    answer = basil("run", "--resume", "broken")
    assert answer.code == 0
    assert answer.err == "warning: broken was begun by other code than this\n"


def test_another_process_computes_the_same_bits(basil, tiny):
    there = subprocess.run(
        [sys.executable, "-m", "basil", "run", "tiny.toml", "--threads", "1", "--json"],
        cwd=tiny,
        capture_output=True,
        text=True,
        check=True,
    )
    here = basil("run", "tiny.toml", "--threads", "1", "--json").json
    assert json.loads(there.stdout)["model_sha256"] == here["model_sha256"]


def test_a_run_whose_last_file_may_not_be_written_ends_with_a_sentence_and_goes_on(
    basil, refused, tiny
):
    """The system's own refusal, of the final models: all is trained by then."""
    large = changes("learning.model=mlp")
    assert basil("run", "tiny.toml", *large, "--out", "whole").code == 0
    size = (tiny / "whole/models.safetensors").stat().st_size
    with largest_file(size - 1):
        sentence = refused("run", "tiny.toml", *large, "--out", "broken")
    assert sentence == (
        "broken cannot be written: File too large; its last checkpoint is kept;"
        " once it can be, basil run --resume broken"
    )
    assert basil("run", "--resume", "broken").code == 0
    assert result(tiny / "broken") == result(tiny / "whole")


# -- what cannot be resumed -------------------------------------------------------------------


def test_a_finished_run_is_not_resumed(basil, refused, tiny):
    basil("run", "tiny.toml", "--out", "whole")
    before = {path.name: path.read_bytes() for path in (tiny / "whole").iterdir()}
    assert "whole is a finished run: there is nothing to resume" in refused(
        "run", "--resume", "whole"
    )
    assert {path.name: path.read_bytes() for path in (tiny / "whole").iterdir()} == before


def test_a_run_without_a_checkpoint_is_not_resumed(basil, refused, tiny):
    basil("run", "tiny.toml", "--out", "short")
    (tiny / "short/summary.json").unlink()
    assert "short was stopped before its first checkpoint" in refused("run", "--resume", "short")


def test_a_run_that_is_still_running_is_not_resumed_whatever_it_has_left_so_far(
    basil, refused, tiny
):
    basil("run", "tiny.toml", "--out", "young")
    (tiny / "young/summary.json").unlink()
    with held(tiny / "young"):
        assert refused("run", "--resume", "young") == "young is being written by another process"


def test_a_folder_that_is_no_run_is_not_resumed(refused):
    assert "absent holds no run" in refused("run", "--resume", "absent")
    assert not Path("absent").exists()


def test_a_damaged_checkpoint_is_named(basil, refused, tiny):
    basil("run", "tiny.toml", "--out", "short")
    (tiny / "short/summary.json").unlink()
    (tiny / "short/checkpoint.safetensors").write_bytes(b"half a checkpoi")
    sentence = refused("run", "--resume", "short")
    assert "short/checkpoint.safetensors is not a checkpoint that can be read" in sentence


@pytest.mark.parametrize("more", [["tiny.toml"], ["-s", "seed=1"], ["--out", "there"]])
def test_a_resumed_run_takes_no_new_wishes(refused, more):
    sentence = refused("run", "--resume", "here", *more)
    assert sentence == "--resume DIR goes on as it began: give no recipe, -s or --out with it"


def test_a_comparison_told_to_stop_stops_its_processes_too(basil, tiny):
    """SIGTERM to the command alone: no worker may go on behind its back."""
    words = ["compare", "tiny.toml", "--schemes", "basil", "--attacks", "none", "gaussian"]
    words += ["--jobs", "2", "--out", "both", "--no-report", *changes("scheme.rounds=2000")]
    process = subprocess.Popen(
        [sys.executable, "-m", "basil", *words, *changes(*KEEP_ALWAYS)],
        cwd=tiny,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    cases = [tiny / "both" / name for name in ("basil-none-seed0", "basil-gaussian-seed0")]
    try:
        deadline = time.monotonic() + 180
        while min(map(rounds_in, cases)) < 2 and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=180)  # returns once no worker holds the pipes
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "stopped; the same command goes on from here" in err
    assert all((case / "checkpoint.safetensors").exists() for case in cases)
    assert not any((case / "summary.json").exists() for case in cases)
