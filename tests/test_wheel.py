"""What would be published: built, checked, installed without the repository, and used."""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import basil

ROOT = Path(__file__).parents[1]


def done(*words: object, **settings: object) -> str:
    """What a command prints; its complaints where it fails."""
    answer = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, **settings
    )  # type: ignore[call-overload]
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return str(answer.stdout)


def test_the_page_on_pypi_has_no_link_into_the_repository() -> None:
    text = (ROOT / "docs/pypi.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert all(link.startswith("https://") for link in links)
    assert "<" not in text  # nor one in HTML


@pytest.mark.slow
@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("build", "hatchling", "twine")),
    reason="pip install -e '.[dev]' brings what builds and checks",
)
def test_the_wheel_is_fit_to_be_published_and_works_without_the_repository(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    done(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, ROOT)
    [wheel], [source] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    checked = done(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    assert checked.count("PASSED") == 2

    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        [metadata] = [name for name in names if name.endswith("/METADATA")]
        said = file.read(metadata).decode()
    assert {"basil/recipes/demo.toml", "basil/py.typed", "basil/reporting/page.html.j2"} <= {*names}
    page = ROOT / "src/basil/watch/page"
    assert {f"basil/watch/page/{path.name}" for path in page.iterdir()} <= {*names}
    assert {name.split("/")[0] for name in names} == {"basil", metadata.split("/")[0]}
    for line in ("Author: The Basil authors", "License-Expression: Apache-2.0"):
        assert f"\n{line}\n" in said
    with tarfile.open(source) as file:
        inside = {name.partition("/")[2] for name in file.getnames()}
    assert {"README.md", "LICENSE", "tests/test_wheel.py", "recipes/demo.toml"} <= inside

    # With the packages that are installed here, but none that is installed as a link.
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    [site] = home.glob("lib/python*/site-packages")
    (site / "here.pth").write_text("\n".join(p for p in sys.path if p.endswith("-packages")))
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    where = {"cwd": tmp_path, "env": clean}
    done(home / "bin/pip", "install", "--no-deps", "--no-index", wheel, **where)
    command = home / "bin/basil"
    assert done(command, "--version", **where) == f"basil {basil.__version__}\n"
    assert "demo " in done(command, "list", "recipes", **where)
    out = done(command, "run", "demo", "-s", "scheme.rounds=2", "--out", "runs/first", **where)
    assert "Gaussian" in out
    assert (tmp_path / "runs/first/summary.json").exists()
    assert "report.html" in done(command, "report", "runs/first", **where)  # with its templates
    code = "import basil; print(basil.__file__)"
    assert done(home / "bin/python", "-c", code, **where).startswith(str(home))
