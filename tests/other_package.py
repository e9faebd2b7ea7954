"""The package of docs/start/extending.md: its files, and how it is installed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import basil

DOCUMENT = (Path(__file__).parents[1] / "docs/start/extending.md").read_text(encoding="utf-8")
RECIPE = """
seed = 1
[data]
dataset = "two-moons"
[ring]
nodes = 4
byzantine = 1
connectivity = 2
[scheme]
rounds = 3
rule = "median-loss"
[learning]
model = "mlp"
hidden = 5
batch = 8
[attack]
name = "overshoot"
factor = 3
[record]
every = 1
"""


def block(beginning: str) -> str:
    """The example that begins like this."""
    [text] = re.findall(rf"```\w+\n({re.escape(beginning)}.*?)```", DOCUMENT, flags=re.DOTALL)
    return str(text)


def write_package(folder: Path) -> None:
    """As the document has it."""
    package = folder / "my_pkg"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(block("[build-system]"))
    (package / "__init__.py").touch()
    (package / "attacks.py").write_text(block("import basil\n\n\n@basil.declares"))
    (package / "rules.py").write_text(block("import torch\n"))
    (package / "data.py").write_text(block("import numpy"))


def install(folder: Path, target: Path) -> None:
    """With pip and without a network."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    subprocess.run([*pip, *alone, str(folder)], check=True, capture_output=True, timeout=120)


def environment(*first: Path) -> dict[str, str]:
    """This process's, with these folders and this very Basil on the path."""
    path = map(str, [*first, Path(basil.__file__).parents[1]])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
