"""Keys and values as TOML has them, checked: what is wrong is said in one sentence."""

import json
import math
from collections.abc import Mapping
from types import UnionType
from typing import Any, get_args, get_origin

from basil.errors import UserError
from basil.table import nearest

WHOLE = 2**63 - 1  # the largest whole number that every reader of TOML must know
REAL = 3.4028234663852886e38  # the largest that a model, which is float32, can hold
SHOWN = 60  # letters of a value in a sentence


def known_keys(values: Mapping[str, Any], known: Mapping[str, Any], source: str) -> None:
    for key in values:
        if key not in known:
            raise UserError(f"unknown key {key!r}: {nearest(key, known)} ({source})")


def typed(value: Any, kind: Any, key: str, source: str) -> Any:
    """The value, if it has the type; whole numbers do for real ones, lists for tuples."""
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{key} = {shown(value)}: it must be a list ({source})")
        return tuple(typed(item, get_args(kind)[0], key, source) for item in value)
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if type(value) is int and abs(value) > WHOLE:
        raise UserError(
            f"{key} = {shown(value)}: it must be a whole number of 64 bits, at most {WHOLE}"
            f" ({source})"
        )
    if float in kinds and type(value) is int:
        return float(value)
    if not any(type(value) is k for k in kinds):
        words = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
        wanted = " or ".join(words[k] for k in kinds if k in words)
        raise UserError(f"{key} = {shown(value)}: it must be {wanted} ({source})")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{key} = {value}: it must be a finite number ({source})")
    if isinstance(value, float) and abs(value) > REAL:
        raise UserError(f"{key} = {value}: it must be at most 3.4e38, as in float32 ({source})")
    return value


def shown(value: Any) -> str:
    """A value as a sentence has it: as TOML writes it, and not longer than it takes to find it."""
    try:
        text = json.dumps(value, default=str)
    except (ValueError, RecursionError):  # too many digits to write out; too many brackets
        text = f"a value of {value.bit_length()} bits" if isinstance(value, int) else "…"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
