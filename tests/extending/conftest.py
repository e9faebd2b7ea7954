"""Commands in processes of their own, with a package installed that is not Basil's."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli_helpers import Answer
from other_package import RECIPE, environment, install, write_package


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has put the package."""
    folder = tmp_path_factory.mktemp("package")
    write_package(folder / "source")
    install(folder / "source", folder / "site")
    return folder / "site"


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Answer]:
    """command("run", "mine.toml", path=[site]) -> its exit code and what it printed."""
    (tmp_path / "mine.toml").write_text(RECIPE)

    def run(*words: object, path: tuple[Path, ...] = (), cwd: Path = tmp_path) -> Answer:
        ended = subprocess.run(
            [sys.executable, "-m", "basil", *map(str, words)],
            cwd=cwd,
            env=environment(*path),
            capture_output=True,
            text=True,
            timeout=300,
        )
        return Answer(ended.returncode, ended.stdout, ended.stderr)

    return run
