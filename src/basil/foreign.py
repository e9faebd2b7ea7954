"""Others' code by name: "module:attribute", "file.py:attribute", or what a package offers.

Modules are imported as installed; what is not is looked for in the current folder and in those that
`look_in` was told, such as the recipe's.  Nothing is ever fetched.
"""

import hashlib
import importlib
import importlib.util
import operator
import os.path
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from basil.errors import UserError

MAIN = ("__main__", "__mp_main__")  # what a process runs, which no other one can import
_folders: list[str] = []
_modules: list[str] = []


@dataclass(frozen=True)
class Whereabouts:
    """What another process needs to find the same code."""

    folders: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()  # those that register entries as they are imported


def look_in(folder: str | Path) -> None:
    """Local modules and files may lie here, too."""
    place = str(Path(folder).resolve())
    if place not in _folders:
        _folders.append(place)


def note(module: str) -> None:
    """This module registers entries: who needs them imports it."""
    if module not in (*MAIN, *_modules):
        _modules.append(module)


def whereabouts() -> Whereabouts:
    return Whereabouts(tuple(_places()), tuple(_modules))


def find_again(there: Whereabouts) -> None:
    """In another process: look where the first one looked."""
    for folder in there.folders:
        look_in(folder)
    for module in there.modules:
        _module(module)


def offers(group: str) -> list[EntryPoint]:
    """The entry points of installed packages for one kind of thing, by name."""
    return _offers(group, tuple(sys.path))


@cache
def _offers(group: str, path: tuple[str, ...]) -> list[EntryPoint]:
    """Read again where packages may have been added: it takes milliseconds for each."""
    return sorted(entry_points(group=f"basil.{group}"), key=lambda offer: offer.name)


def offered(name: str, group: str) -> str | None:
    """The "module:attribute" that an installed package offers under this name."""
    values = {
        offer.value.partition("[")[0].strip() for offer in offers(group) if offer.name == name
    }
    if len(values) > 1:
        raise UserError(f"several packages offer it: write {' or '.join(sorted(values))}")
    return values.pop() if values else None


def imported(name: str) -> tuple[Any, ModuleType]:
    """What "module:attribute" or "file.py:attribute" names, and the module that holds it."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise UserError("write it as module:attribute or file.py:attribute")
    module = _file(place) if place.endswith(".py") else _module(place)
    try:
        return operator.attrgetter(attribute)(module), module
    except AttributeError:
        raise UserError(f"{place} has no {attribute!r}") from None


def digest(module: ModuleType) -> str:
    """SHA-256 of the source: of all modules of a package, or of the one file."""
    package = sys.modules.get(module.__name__.partition(".")[0], module)
    root = getattr(package, "__file__", None) if hasattr(package, "__path__") else None
    file = getattr(module, "__file__", None)
    if root is not None:
        files = {p.relative_to(Path(root).parent): p for p in Path(root).parent.rglob("*.py")}
    else:  # a module of its own; typed at a prompt, it has no file
        files = {Path(Path(file).name): Path(file)} if file is not None else {}
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(f"{name.as_posix()}\n".encode() + files[name].read_bytes())
    return total.hexdigest()


def _places() -> list[str]:
    return list(dict.fromkeys([str(Path.cwd()), *_folders]))


def _searched() -> str:
    """The places in words: a long session knows many, and the first and the last are telling."""
    places = _places()
    some = places if len(places) <= 3 else [places[0], *places[-2:]]
    more = len(places) - len(some)
    return " or ".join(some) + (f" or {more} more" if more else "")


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not _is_absent(name, error):
            raise _failed(name, error) from error
    except Exception as error:
        raise _failed(name, error) from error
    # Local folders come last, so that nothing in them passes for an installed module.
    sys.path += [place for place in _places() if place not in sys.path]
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not _is_absent(name, error):
            raise _failed(name, error) from error
        raise UserError(
            f"there is no module {name!r:.100}, neither installed nor in {_searched()}"
        ) from None
    except Exception as error:
        raise _failed(name, error) from error


def _is_absent(name: str, error: ModuleNotFoundError) -> bool:
    """Is it this module that is missing, or one that it imports?"""
    return error.name is not None and f"{name}.".startswith(f"{error.name}.")


def _file(place: str) -> ModuleType:
    """A file is a module of its own; it may import what lies beside it."""
    # A worker has its parent's sys.path, which holds the recipe's folder by then.
    found = [Path(folder, place) for folder in (*_places(), *sys.path)]
    path = next((p.resolve() for p in found if os.path.isfile(p)), None)
    if path is None:
        raise UserError(f"there is no file {place!r:.100} in {_searched()}")
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    sys.path += [folder for folder in (*_places(), str(path.parent)) if folder not in sys.path]
    importlib.invalidate_caches()
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _failed(place, error) from error
    return module


def _failed(name: str, error: Exception) -> UserError:
    said = " ".join(str(error).split())
    if isinstance(error, UserError):
        return UserError(said)
    return UserError(f"{name} cannot be imported: {type(error).__name__}: {said}")
