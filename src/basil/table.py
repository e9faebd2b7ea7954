"""Tables of things a recipe can name: schemes, attacks, rules, partitions, models, data sets.

An entry is one function.  Its docstring is its documentation and its keyword-only arguments are
its options: a recipe may set just those, with values of the type of their defaults.  So a new
attack is a function and a line in the table, and the command line, the recipe's error messages and
the contract tests know it.
"""

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from basil.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])


class Table(Mapping[str, F], Generic[F]):
    """Name -> function, for one kind of thing ("attack", "partition", ...)."""

    def __init__(self, kind: str, entries: Mapping[str, F]) -> None:
        self.kind = kind
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> F:
        try:
            return self._entries[name]
        except KeyError:
            raise UserError(
                f"{self.kind} {name!r} does not exist; {nearest(name, self._entries)}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def options(self, name: str) -> dict[str, Any]:
        """The keyword-only arguments of an entry, with their defaults."""
        return {
            parameter.name: parameter.default
            for parameter in inspect.signature(self[name]).parameters.values()
            if parameter.kind is parameter.KEYWORD_ONLY
        }

    def summary(self, name: str) -> str:
        """The first line of an entry's docstring."""
        return (inspect.getdoc(self[name]) or "").split("\n")[0]


def nearest(wrong: str, right: Mapping[str, Any]) -> str:
    """'did you mean ...?' where something is near enough, else everything there is."""
    close = difflib.get_close_matches(wrong, right, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(right)}"
