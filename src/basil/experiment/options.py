"""The options that stand in a section of a recipe beside the name of a table's entry."""

from typing import Any

from basil.table import Table


def options_of(section: Any, table: Table[Any], key: str) -> dict[str, Any]:
    """Those of the section's options that belong to the entry that `key` names."""
    known = table.options(getattr(section, key))
    return {name: value for name, value in section.options.items() if name in known}
