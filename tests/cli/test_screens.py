"""What commands show on a terminal of 80 columns, as files in screens/.

    BASIL_SCREENS=write pytest tests/cli/test_screens.py

writes them anew, to be looked at before they are committed.
"""

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from basil.peer.run.status import Status

from cli_helpers import FIGURE, TINY, Answer

SCREENS = Path(__file__).parent / "screens"
COMMANDS = {
    "run": ["basil run tiny.toml", "basil run tiny.toml -s ring.byzantine=3", "basil run tyni"],
    "compare": [
        "basil compare tiny.toml --schemes basil basil-published --attacks none layer-sign-flip"
        " --seeds 0 1 --jobs 1"
    ],
    "sweep": ["basil sweep sweep.toml --jobs 1"],
    "list": [
        "basil list partitions",
        "basil list recipes cifar100",
        "basil list attacks hidden",
        "basil list rules trust",
    ],
    "plan": [
        "basil plan --nodes 1000000 --byzantine 330000 --failure 1e-9",
        "basil plan --nodes 400 --byzantine 60 --groups 4 --dropouts 5 --simulate 20",
    ],
    "reproduce": [
        "basil reproduce two.toml --quick --jobs 1",
        "basil reproduce fig2",
        "basil reproduce --list",
    ],
    "peers-status": ["basil peers status --dir ring"],
}
SWEEP = TINY + "\n[sweep]\nseeds = [0, 1]\n[sweep.grid]\nring.connectivity = [1, 2, 7]\n"
RUNS_SOMETHING = ("run", "compare", "sweep", "reproduce")
SLOW = ("compare", "sweep", "reproduce")


@pytest.fixture
def stage(tiny: Path) -> Path:
    """A folder with all that the commands name."""
    (tiny / "sweep.toml").write_text(SWEEP)
    (tiny / "two.toml").write_text(FIGURE)
    shown = Status(0, 1, "training", 12, 40, 0.0231, 0.5, 0.913, 3)
    late = Status(1, 1, "training", 11, 40, 0.5, 0.5, 0.875, 0, [4, 17], [2, 5], 1234)
    lying = Status(2, 1, "done", 40, 40, 0.0219, 0.5, None, attack="layer-sign-flip", refused=7)
    for status in (shown, late, lying, None):
        folder = tiny / f"ring/node-{3 if status is None else status.node}"
        folder.mkdir(parents=True)
        (folder / "tls.key").touch()
        if status is not None:
            status.write(folder)
    return tiny


def placeholders(screen: str) -> str:
    """Digests, and the digits of what is measured, which may differ between machines."""
    screen = re.sub(r"\b[0-9a-f]{8,}\b", "SHA", screen)
    return re.sub(r"\d+\.\d+", lambda found: re.sub(r"\d", "#", found[0]), screen)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in COMMANDS],
)
def test_a_screen_of_80_columns(
    basil: Callable[..., Answer], stage: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    screen = ""
    for command in COMMANDS[name]:
        answer = basil(*shlex.split(command)[1:])
        shown = answer.out + answer.err
        assert max(map(len, shown.splitlines())) <= 80
        screen += f"$ {command}\n{shown}\n"
    if name in RUNS_SOMETHING:
        screen = placeholders(screen)
    file = SCREENS / f"{name}.txt"
    if os.environ.get("BASIL_SCREENS") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(screen, encoding="utf-8")
    assert screen == file.read_text(encoding="utf-8")
