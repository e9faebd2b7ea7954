"""`benchmarks/rivals.py`, on rivals that are made up: nothing is installed."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

WORK = {"threads": 1, "rounds": 2}


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = Path(__file__).parents[1] / "benchmarks" / "rivals.py"
    spec = importlib.util.spec_from_file_location("rivals_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "environment", lambda folder: sys.executable)
    return module


def _rival(folder: Path, name: str, code: str) -> None:
    (folder / name).mkdir()
    (folder / name / "run.py").write_text(code)


def _says(plain: float, attacked: float | None) -> str:
    """A script that gets faster from one time to the next: it counts how often it ran."""
    ways = {"robust": [attacked, attacked]} if attacked else {}
    said = {"version": "1.0", "can": "something", "plain": {"mean": [0, 0]}, "attacked": ways}
    return (
        "import json, pathlib\n"
        "count = pathlib.Path(__file__).with_name('count')\n"
        "count.write_text(times := (count.read_text() if count.exists() else '') + 'x')\n"
        f"said = {said!r}\n"
        f"said['plain']['mean'] = [{plain} + 1 / len(times), {plain}]\n"
        "print('{not the last line')\n"
        "print(json.dumps(said))\n"
    )


def test_ratios_are_to_basil_and_the_fastest_counts(rivals: ModuleType, tmp_path: Path) -> None:
    _rival(tmp_path, "basil", _says(1.5, 4.0))
    _rival(tmp_path, "other", _says(3.5, None))
    found, failed = rivals.compare(tmp_path, ["basil", "other"], WORK, repeats=2)
    assert failed == {}
    assert found["other"]["plain"]["mean"] == [4.0, 3.5]  # of 4.5 and 4.0
    lines = rivals.table(found)
    assert "| other 1.0 | mean | 4.00 | 3.50 | 2.00 | 2.33 |" in lines
    assert "| basil 1.0 | robust | 4.00 | 4.00 | 1.00 | 1.00 |" in lines
    assert "| other 1.0 | cannot | | | | |" in lines
    assert lines[-1] == "- other: something."


def test_a_rival_that_fails_is_named_with_its_reason(
    rivals: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def environment(folder: Path) -> str:
        if folder.name == "absent":
            raise rivals.CannotRun("does not install here. No such thing.")
        return sys.executable

    monkeypatch.setattr(rivals, "environment", environment)
    _rival(tmp_path, "broken", "raise SystemExit('it needs a server')")
    (tmp_path / "unwritten").mkdir()
    names = ["absent", "broken", "unwritten"]
    found, failed = rivals.compare(tmp_path, names, WORK, repeats=1)
    assert found == {}
    assert failed == {
        "absent": "does not install here. No such thing.",
        "broken": "fails here. it needs a server",
        "unwritten": "installs here, but run.py is still to be written.",
    }


def test_a_rival_is_given_the_work(rivals: ModuleType, tmp_path: Path) -> None:
    code = "import sys; print(sys.argv[1])"
    _rival(tmp_path, "echo", code)
    assert rivals.run(sys.executable, tmp_path / "echo" / "run.py", WORK) == json.loads(
        json.dumps(WORK)
    )
