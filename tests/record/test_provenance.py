"""A hash that differs where outcomes may."""

from pathlib import Path

import pytest

from basil.record import provenance
from basil.record.provenance import NO_SAY, PACKAGE


def test_what_has_no_say_is_there() -> None:
    assert [part for part in NO_SAY if not (PACKAGE / part).is_dir()] == []


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("rng.py", "protocol/rules/trust.py", "cli/commands.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("z = 1\n")
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    return tmp_path


def test_what_decides_counts_and_nothing_else(package: Path) -> None:
    def now() -> str:
        return provenance.code_sha256.__wrapped__()

    first = now()
    (package / "cli/commands.py").write_text("z = 2\n")
    assert now() == first
    (package / "new").mkdir()
    (package / "new/cli.py").touch()
    assert now() != first
    (package / "new/cli.py").unlink()
    (package / "protocol/rules/trust.py").write_text("z = 2\n")
    changed = now()
    assert changed != first
    (package / "protocol/rules/trust.py").rename(package / "protocol/rules/distrust.py")
    assert now() not in (first, changed)
    (package / "protocol/rules/distrust.py").rename(package / "protocol/rules/trust.py")
    (package / "protocol/rules/trust.py").write_text("z = 1\n")
    assert now() == first
