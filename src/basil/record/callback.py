"""Callbacks: for those who want to hear of a run while it goes on.

A callback is any object with these three methods.  It hears only what is written to the run folder
too, and only once it is written: on a GPU, asking it for more would make the host wait.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from basil.errors import UserError


class Callback(Protocol):
    """One for each run: `begin`, `measured` again and again, and `end` once the run is finished.

    A run that is interrupted and taken up again begins again, with the round in which it stands.
    """

    def begin(self, folder: Path, recipe: dict[str, Any], round: int) -> None:
        """The run starts, in this run folder; `recipe` has every default filled in."""

    def measured(self, metrics: dict[str, Any]) -> None:
        """A line of metrics.jsonl: round, accuracy, loss, what was sent and computed so far."""

    def end(self, summary: dict[str, Any]) -> None:
        """The run is finished; this is its summary.json."""


def flat(metrics: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """{"accuracy": {"worst": 0.9}} -> {"accuracy/worst": 0.9}; numbers only."""
    found: dict[str, float] = {}
    for key, value in metrics.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[prefix + key] = value
    return found


def named(name: str) -> Callable[[], Callback]:
    """What makes a callback, by "module:name"; the module is imported."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise UserError(f"--log {name}: write it as module:name, e.g. my_logging:Wandb")
    try:
        make: Callable[[], Callback] = getattr(import_module(module), attribute)
    except ImportError as error:
        raise UserError(f"--log {name}: {error}") from error
    except AttributeError:
        raise UserError(f"--log {name}: {module} has no {attribute}") from None
    return make
