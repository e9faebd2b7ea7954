"""Tables of things a recipe can name: schemes, attacks, rules, partitions, models, data sets.

An entry is one function.  Its docstring is its documentation and its keyword-only arguments are
its options: a recipe may set just those, with values of the type of their defaults.  So a new
attack is a function and a line in the table, and the command line, the recipe's error messages and
the contract tests know it.

An entry may also come from elsewhere, by "module:attribute" or "file.py:attribute", by a name that
an installed package offers (entry points, group `basil.attacks` and so on), or registered from
Python.  Basil's own names cannot be taken.
"""

import difflib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from basil import foreign
from basil.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])
PLAIN = (bool, int, float, str)  # what an option can be


class Table(Mapping[str, F], Generic[F]):
    """Name -> function, for one kind of thing ("attack", "partition", ...).

    group: what `basil list` and entry points call this kind.  takes: the positional arguments of
    every entry; one that is called with others has an attribute `takes`.  adapt: makes an entry of
    what was imported.
    """

    def __init__(
        self,
        kind: str,
        entries: Mapping[str, F],
        group: str = "",
        takes: tuple[str, ...] = (),
        adapt: Callable[[Any], Any] = lambda thing: thing,
    ) -> None:
        self.kind, self.group = kind, group or f"{kind}s"
        self._entries = dict(entries)
        self._takes, self._adapt = takes, adapt
        self._foreign: dict[str, tuple[F, str]] = {}  # with a digest of the source

    def __getitem__(self, name: str) -> F:
        return self._entries[name] if name in self._entries else self._found(name)[0]

    def __iter__(self) -> Iterator[str]:
        registered = [name for name in self._foreign if ":" not in name]
        offered = [offer.name for offer in foreign.offers(self.group)]
        return iter(dict.fromkeys([*self._entries, *registered, *offered]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def digest(self, name: str) -> str | None:
        """Of the source of an entry that Basil does not ship; None for one that it does."""
        return None if name in self._entries else self._found(name)[1]

    def register(self, name: str, thing: Any) -> F:
        """Enter what another module defines; a later one of the same name takes its place."""
        if name in self._entries or ":" in name:
            raise UserError(f"{self.kind} {name!r}: Basil has one, or it has a colon; rename it")
        entry, _ = self._foreign[name] = self._entered(name, thing)
        foreign.note(thing.__module__)
        return entry

    @contextmanager
    def lent(self, thing: Any) -> Iterator[str]:
        """A name for an entry, for the time being: for tests of what is not registered."""
        if isinstance(thing, str):
            yield thing
            return
        name = f"{getattr(thing, '__name__', self.kind)}:lent"
        self._foreign[name] = self._entered(name, thing)
        try:
            yield name
        finally:
            del self._foreign[name]

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

    def _found(self, name: str) -> tuple[F, str]:
        if name not in self._foreign:
            try:
                place = name if ":" in name else foreign.offered(name, self.group)
                found = None if place is None else foreign.imported(place)
            except UserError as error:
                raise UserError(f"{self.kind} {name!r:.100}: {error}") from error
            if found is None:
                raise UserError(f"{self.kind} {name!r:.100} does not exist; {nearest(name, self)}")
            thing, module = found
            self._foreign[name] = self._checked(name, thing), foreign.digest(module)
        return self._foreign[name]

    def _entered(self, name: str, thing: Any) -> tuple[F, str]:
        """By those who have it at hand: its module is the one that defines it."""
        entry = self._checked(name, thing)
        return entry, foreign.digest(sys.modules[thing.__module__])

    def _checked(self, name: str, thing: Any) -> F:
        """What Basil can call as an entry of this table, or what is wrong with it."""
        if not callable(thing):
            raise UserError(f"{self.kind} {name!r}: it must be a function, not {thing!r:.40}")
        try:
            made: F = self._adapt(thing)
        except UserError as error:
            raise UserError(f"{self.kind} {name!r}: {error}") from None
        takes: tuple[str, ...] = getattr(made, "takes", self._takes)
        wanted = f"it must be a function ({', '.join(takes)}, *, options with defaults)"
        try:
            signature = inspect.signature(made)
            signature.bind(*takes)
        except (TypeError, ValueError) as error:
            raise UserError(f"{self.kind} {name!r}: {wanted}: {error}") from None
        for place, parameter in enumerate(signature.parameters.values()):
            if parameter.kind is parameter.KEYWORD_ONLY and type(parameter.default) not in PLAIN:
                raise UserError(
                    f"{self.kind} {name!r}: option {parameter.name!r} is {parameter.default!r:.40};"
                    " it must be a number, a string, true or false"
                )
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and place >= len(takes):
                raise UserError(
                    f"{self.kind} {name!r}: {wanted}: write {parameter.name!r} after the *"
                )
        return made


def states(**known: Any) -> Callable[[F], F]:
    """State what else must be known of an entry: of a graph `random`, of a scheme `on`, …"""

    def state(entry: F) -> F:
        for name, value in known.items():
            setattr(entry, name, value)
        return entry

    return state


def nearest(wrong: str, right: Iterable[str]) -> str:
    """'did you mean ...?' where something is near enough, else everything there is."""
    known = list(right)
    close = difflib.get_close_matches(wrong, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
