"""Pages, figures and tables on a disk that does not take them."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from basil.errors import UserError
from basil.many.sweep import write_table

from cli_helpers import FIGURE, Answer, largest_file

Command = Callable[..., Answer]
Refused = Callable[..., str]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_report_that_does_not_fit_is_one_sentence_and_leaves_what_was_there(
    basil: Command, refused: Refused, tiny: Path
) -> None:
    basil("run", "tiny.toml", "--out", "one")
    assert basil("report", "one").code == 0
    before = contents(tiny / "one")
    page = before[tiny / "one/report.html"]
    for most in (100, len(page) - 1):  # the first picture; the page, which holds all of them
        with largest_file(most):
            assert refused("report", "one") == "one cannot be written: File too large"
        assert contents(tiny / "one") == before


def test_so_is_a_report_on_a_read_only_disk(
    basil: Command, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    basil("run", "tiny.toml", "--out", "one")

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", read_only)
    said = refused("report", "one", "--out", "page")
    assert said == "page cannot be written: Read-only file system"


def test_so_are_figures_and_tables(basil: Command, refused: Refused, tiny: Path) -> None:
    (tiny / "two.toml").write_text(FIGURE)
    words = ["reproduce", "two.toml", "--jobs", "1", "--out", "paper", "--json"]
    assert basil(*words).code == 0
    said = refused(*words, "--draw-only", "--publish", "tiny.toml")
    assert said == "tiny.toml cannot be written: Not a directory"
    with pytest.raises(UserError, match=r"tiny\.toml cannot be written: File exists"):
        write_table([{"seed": 0}], Path("tiny.toml"))
