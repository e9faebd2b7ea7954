"""What a protocol remembers: a dataclass, to plain values for a checkpoint, and back.

A state may hold numbers, strings, tensors, losses, further dataclasses, and dicts, lists, tuples
and sets of these.  A field of type `dict[str, Any]` holds plain values already.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from torch import Tensor

from basil.errors import UserError
from basil.learning.promises import Losses

S = TypeVar("S")
FIXED = (Tensor, int, float, str, frozenset, NoneType)  # what nobody changes


def kept(state: Any) -> Callable[[], dict[str, Any]]:
    """The state of this moment, packed when it is asked for: few checkpoints are written down."""
    moment = {n: v if isinstance(v, FIXED) else copy(v) for n, v in vars(state).items()}
    return lambda: {name: _plain(value) for name, value in moment.items()}


def restored(kind: type[S], saved: dict[str, Any]) -> S:
    """What `kept` has packed."""
    hints = get_type_hints(kind)
    if saved.keys() != hints.keys():
        raise UserError("the checkpoint is of another version of basil: start the run anew")
    return kind(**{name: _typed(hints[name], value) for name, value in saved.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, Losses):
        return value.wait()
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: _plain(item) for key, item in value.items()}
        return [[_plain(key), _plain(item)] for key, item in value.items()]
    if isinstance(value, set | frozenset):
        return [_plain(item) for item in sorted(value)]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _typed(kind: Any, value: Any) -> Any:
    outer, inner = get_origin(kind), get_args(kind)
    if outer is UnionType:  # T | None
        return None if value is None else _typed(inner[0], value)
    if kind is Losses:
        return Losses(value)
    if is_dataclass(kind):
        return restored(kind, value)  # type: ignore[arg-type]
    if outer is dict and inner[0] is not str:
        pairs = value.items() if isinstance(value, dict) else value  # empty: no keys to tell
        return {_typed(inner[0], key): _typed(inner[1], item) for key, item in pairs}
    if outer is tuple:
        return tuple(_typed(of, item) for of, item in zip(inner, value, strict=True))
    if outer in (list, set, frozenset):
        return outer(_typed(inner[0], item) for item in value)
    return value
