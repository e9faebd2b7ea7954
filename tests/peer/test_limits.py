"""The security notes name every limit with its default."""

import re
from dataclasses import fields
from pathlib import Path

from basil.peer import limits
from basil.peer.limits import Limits

NOTES = Path(__file__).parents[2] / "docs" / "operate" / "security.md"


def test_the_notes_name_every_limit_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S+)", NOTES.read_text(), re.MULTILINE)
    documented = {name: value for name, value in rows if name.islower()}
    assert documented == {field.name: str(field.default) for field in fields(Limits)}


def test_the_notes_name_what_all_must_agree_on() -> None:
    text = NOTES.read_text()
    assert {name for name in vars(limits) if name.isupper()} - {"MIB"} == set(
        re.findall(r"^\| `([A-Z]+)` ", text, re.MULTILINE)
    )
    mib = 1 << 20
    assert (limits.CHUNK, limits.HEADER, limits.MANIFEST) == (mib, mib, 4096)
    assert limits.MESSAGE == mib + 64 * 1024


def test_every_test_that_the_notes_name_is_there() -> None:
    named = re.findall(r"(?:test_\w+\.py|…)::(test_\w+)", NOTES.read_text())
    tests = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert len(named) > 25
    assert [name for name in named if f"def {name}(" not in tests] == []


def test_a_transfer_is_given_time_by_its_size() -> None:
    assert Limits(grace=10.0, slowest=1e6).deadline(50_000_000) == 60.0
