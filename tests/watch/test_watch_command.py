"""basil watch and --watch: addresses, refusals, and an end."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest

from basil.cli import main
from basil.errors import UserError
from basil.watch.start import TOKEN, beside, token

from cli_helpers import TINY
from watch_helpers import PATIENCE, GrowingRun


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return str(answer.read().decode())


@contextmanager
def command(*words: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command with the address that it prints."""
    full = [sys.executable, "-m", "basil", "watch", *map(str, words), "--no-open"]
    process = subprocess.Popen(full, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().removeprefix("page  ").strip()
    finally:
        process.kill()
        process.communicate()


def test_it_prints_a_new_secret_address_each_time_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "run")
    addresses = []
    for _ in range(2):
        with command(run.folder) as (process, url):
            addresses.append(url)
            assert url.startswith("http://127.0.0.1:")
            assert "<title>Basil</title>" in read(url)
            with pytest.raises(HTTPError, match="403"):
                read(url.rsplit("/", 2)[0] + "/")
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
    secrets = {url.rstrip("/").rpartition("/")[2] for url in addresses}
    assert len(secrets) == 2
    assert all(len(secret) >= 32 for secret in secrets)


def test_elsewhere_than_on_loopback_it_says_what_that_means(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "run")
    with command(run.folder, "--bind", "0.0.0.0") as (process, url):
        port = url.split(":")[2].split("/")[0]
        assert "<title>" in read(f"http://127.0.0.1:{port}/{url.rstrip('/').rpartition('/')[2]}/")
        process.send_signal(signal.SIGINT)
        assert "unencrypted" in process.communicate(timeout=PATIENCE)[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "nothing is no folder"),
        (["run", "--port", "99999"], "--port 99999: it must be at most 65535"),
        (["run", "--bind", "192.0.2.1"], "192.0.2.1:0 cannot be listened on"),
        (["ring"], "holds no nodes"),
    ],
)
def test_what_cannot_be_watched_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.nice", lambda more: 0)
    GrowingRun(tmp_path / "run")
    (tmp_path / "ring").mkdir()
    (tmp_path / "ring/roster.toml").touch()
    assert main(["watch", *words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning" not in line]
    assert len(lines) == 1
    assert said in lines[0]


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("basil.watch.start.find_spec", lambda name: None)
    assert main(["watch", str(tmp_path)]) == 2
    assert "pip install 'basil-fl[watch]'" in capsys.readouterr().err


def test_an_address_can_stay_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "a" * 22)
    assert token() == "a" * 22
    for weak in ("short", "a" * 21, "a" * 22 + "/", "ü" * 30):
        monkeypatch.setenv(TOKEN, weak)
        with pytest.raises(UserError, match="22"):
            token()


def test_a_page_beside_a_run_ends_with_it(tmp_path: Path) -> None:
    with beside(tmp_path / "not-yet", "run") as page:
        assert page.stdout is not None
        url = page.stdout.readline().strip()
        assert "<title>" in read(url)
    assert page.returncode is not None
    with pytest.raises((URLError, ConnectionError)):
        read(url)


def test_a_page_whose_parent_is_killed_ends_too(tmp_path: Path) -> None:
    """It hears of that by the end of its input."""
    with beside(tmp_path, "collection") as page:
        assert page.stdin is not None
        assert page.stdout is not None
        page.stdout.readline()
        page.stdin.close()
        page.wait(PATIENCE)


def test_a_run_that_is_watched_gives_the_same_as_one_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(TINY)
    found = []
    for words in (["--out", "plain"], ["--out", "seen", "--watch"]):
        assert main(["run", "tiny.toml", "--json", *words]) == 0
        answer = capsys.readouterr()
        found.append(json.loads(answer.out)["model_sha256"])
    assert found[0] == found[1]
    assert "page  http://127.0.0.1:" in answer.err
