"""basil sweep --engine ray: the pool's results bit for bit, whatever is lost on the way."""

import csv
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cli_helpers import TINY

pytestmark = pytest.mark.slow

MANY = (
    TINY.replace("rounds = 4", "rounds = 150")
    + """
[sweep]
seeds = [0, 1, 2]

[sweep.grid]
scheme.name = ["basil", "r-plain"]
attack.name = ["none", "gaussian"]
learning.rate = [0.1, 0.3]
"""
)
BASIL = [sys.executable, "-m", "basil"]
ON_RAY = ["sweep", "many.toml", "--engine", "ray", "--out", "ray"]
LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's word for: nodes on 127.0.0.1 only
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "0123456789abcdef0123456789abcdef",
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """The same 24 runs in a pool."""
    pytest.importorskip("ray")
    folder = tmp_path_factory.mktemp("pool")
    (folder / "many.toml").write_text(MANY)
    command = [*BASIL, "sweep", "many.toml", "--jobs", "2", "--out", "pool"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    return folder / "pool"


@pytest.fixture
def place(tmp_path):
    """A folder with the sweep to work in."""
    (tmp_path / "many.toml").write_text(MANY)
    return tmp_path


@pytest.fixture
def cluster(place):
    """A cluster's process, its address, and the environment of whoever wants to join it."""
    pytest.importorskip("ray")
    (place / "tmp").mkdir()
    with tempfile.TemporaryDirectory(prefix="ray") as short:  # names of sockets are short
        there = os.environ | LOOPBACK
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("ray_cluster.py"))],
            env=there | {"RAY_TMPDIR": short, "TMPDIR": str(place / "tmp")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address.startswith("127.0.0.1:")
            yield process.pid, address, there
        finally:
            process.stdin.close()
            process.wait(timeout=60)
            process.stdout.close()


def outcomes(folder: Path) -> dict[str, tuple[str, str]]:
    with (folder / "sweep.csv").open(newline="") as file:
        rows = csv.DictReader(file)
        return {row["run"]: (row["model_sha256"], row["accuracy/worst"]) for row in rows}


def assert_same_runs(here: Path, there: Path) -> None:
    assert len(outcomes(here)) == 24
    assert outcomes(here) == outcomes(there)
    for folder in outcomes(here):
        for name in ("selections.csv", "recipe.toml", "models.safetensors"):
            assert (here / folder / name).read_bytes() == (there / folder / name).read_bytes()


def finished(folder: Path) -> int:
    return len(list(folder.glob("ray/*/summary.json")))


def workers_at_work(top: int) -> list[int]:
    """Processes of Ray below the process `top` that have a task."""
    parents, busy = {}, []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            title = (entry / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended meanwhile
        parents[int(entry.name)] = int(stat[1])
        if title.startswith(b"ray::task"):  # the name of the function in `basil.many.ray`
            busy.append(int(entry.name))

    def below(pid: int) -> bool:
        while pid > 1:
            pid = parents.get(pid, 0)
            if pid == top:
                return True
        return False

    return [pid for pid in busy if below(pid)]


def kill_a_worker(top: int) -> bool:
    for worker in workers_at_work(top)[:1]:
        with suppress(ProcessLookupError):  # its task may just have ended
            os.kill(worker, signal.SIGKILL)
            return True
    return False


def disturbed(
    words: list[str],
    place: Path,
    after: int,
    disturb: Callable[[subprocess.Popen[str]], bool],
    env: dict[str, str] | None = None,
) -> tuple[int, str, str]:
    """The command, disturbed once `after` runs are finished; its exit code and output."""
    process = subprocess.Popen(
        [*BASIL, *words],
        cwd=place,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 300
        while finished(place) < after or not disturb(process):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert finished(place) < 24
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out, err


def test_24_runs_on_ray_with_a_worker_killed_are_those_of_the_pool(place, pool):
    words = [*ON_RAY, "--jobs", "3"]
    code, out, err = disturbed(words, place, 3, lambda process: kill_a_worker(process.pid))
    assert code == 0, err
    assert "24 of 24 runs are finished, 24 of them new" in out
    assert_same_runs(place / "ray", pool)

    again = subprocess.run([*BASIL, *words], cwd=place, capture_output=True, text=True, timeout=120)
    assert "nothing to do: all 24 runs were finished already" in again.stdout


def test_on_a_cluster_of_two_nodes_a_stopped_sweep_goes_on_and_survives(place, pool, cluster):
    top, address, env = cluster
    words = [*ON_RAY, "--address", address]
    kept = 0
    for number in (signal.SIGINT, signal.SIGTERM):

        def stop(process: subprocess.Popen[str], number: int = number) -> bool:
            process.send_signal(number)
            return True

        code, _, err = disturbed(words, place, kept + 3, stop, env)
        assert (code, err) == (130, "stopped; the same command goes on from here\n")
        kept = finished(place)
        assert not list((place / "tmp").glob("*/run"))  # nodes keep nothing of what was stopped

    code, out, err = disturbed(words, place, kept + 3, lambda process: kill_a_worker(top), env)
    assert code == 0, err
    assert f"24 of 24 runs are finished, {24 - kept} of them new" in out
    assert_same_runs(place / "ray", pool)


OTHER = "import sys, basil; basil.__version__ = '9'; import basil.cli; sys.exit(basil.cli.main())"


def test_a_cluster_that_is_not_ours_refuses_us_in_one_sentence(place, cluster):
    _, address, env = cluster
    words = [*ON_RAY, "--address", address]

    def sentence(command: list[str], **more: str) -> str:
        answer = subprocess.run(
            command, cwd=place, env=env | more, capture_output=True, text=True, timeout=120
        )
        assert answer.returncode == 2
        assert answer.stdout == ""
        [line] = answer.stderr.splitlines()
        return line

    other = sentence([sys.executable, "-c", OTHER, *words])
    assert other == f"basil: --address {address}: this is Basil 9, and the cluster has Basil 0.1.0"
    # The wait is Ray's own, shortened here.
    token = {"RAY_AUTH_TOKEN": "0" * 32, "RAY_gcs_server_port_wait_time_s": "1"}
    stranger = sentence([*BASIL, *words], **token)
    assert stranger.startswith(f"basil: --address {address}: no Ray cluster takes us in there: ")
    assert stranger.endswith("(one with a token wants RAY_AUTH_MODE=token and RAY_AUTH_TOKEN)")
