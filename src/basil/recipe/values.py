"""Keys and values as TOML has them, checked: what is wrong is said in one sentence."""

import json
import math
from collections.abc import Mapping
from types import UnionType
from typing import Any, get_args, get_origin

from basil.errors import UserError
from basil.table import nearest


def known_keys(values: Mapping[str, Any], known: Mapping[str, Any], source: str) -> None:
    for key in values:
        if key not in known:
            raise UserError(f"unknown key {key!r}: {nearest(key, known)} ({source})")


def typed(value: Any, kind: Any, key: str, source: str) -> Any:
    """The value, if it has the type; whole numbers do for real ones, lists for tuples."""
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(
                f"{key} = {json.dumps(value, default=str)}: it must be a list ({source})"
            )
        return tuple(typed(item, get_args(kind)[0], key, source) for item in value)
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if float in kinds and type(value) is int:
        return float(value)
    if not any(type(value) is k for k in kinds):
        words = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
        wanted = " or ".join(words[k] for k in kinds if k in words)
        raise UserError(f"{key} = {json.dumps(value, default=str)}: it must be {wanted} ({source})")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{key} = {value}: it must be a finite number ({source})")
    return value
