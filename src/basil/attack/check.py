"""Options that no attack can have: one sentence each, said before the run."""

import math
from collections.abc import Collection

from basil.errors import UserError
from basil.learning.layout import Layout


def positive(option: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise UserError(f"attack.{option} = {value}: it must be more than 0")


def not_negative(option: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise UserError(f"attack.{option} = {value}: it must be 0 or more")


def at_least(option: str, value: float, smallest: int) -> None:
    if not value >= smallest:
        raise UserError(f"attack.{option} = {value}: it must be {smallest} or more")


def share_of(option: str, value: float) -> None:
    if not 0 < value <= 1:
        raise UserError(f"attack.{option} = {value}: it must be above 0, up to 1")


def one_of(option: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise UserError(f"attack.{option} = {value!r}: one of {', '.join(known)}")


def slot_of(coordinate: int, layout: Layout) -> None:
    """A place in the model's vector; negative ones count from its end."""
    if not -layout.size <= coordinate < layout.size:
        raise UserError(f"attack.coordinate = {coordinate}: the model has {layout.size} parameters")


def label(option: str, value: int, classes: int) -> None:
    if not 0 <= value < classes:
        raise UserError(f"attack.{option} = {value}: the classes are 0 to {classes - 1}")
