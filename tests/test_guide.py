"""The guide names everything that the tables hold."""

from pathlib import Path

import pytest

from basil.protocol.schemes import SCHEMES
from basil.table import Table
from basil.topology import GRAPHS

GUIDE = (Path(__file__).parents[1] / "docs" / "guide.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", [SCHEMES, GRAPHS], ids=["schemes", "graphs"])
def test_the_guide_lists_every_entry_with_its_options(table: Table) -> None:  # type: ignore[type-arg]
    for name in table:
        rows = [line for line in GUIDE.splitlines() if line.startswith(f"| `{name}` |")]
        assert len(rows) == 1, name
        options = rows[0].rsplit("|", 2)[1]
        assert all(f"`{option}`" in options for option in table.options(name)), name
