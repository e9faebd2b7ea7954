"""The schemes that a recipe can name."""

from collections.abc import Callable

from basil.protocol.basil import basil, r_plain
from basil.protocol.node import Node
from basil.protocol.requests import Protocol
from basil.table import Table

SCHEMES: Table[Callable[[Node], Protocol]] = Table("scheme", {"basil": basil, "r-plain": r_plain})
