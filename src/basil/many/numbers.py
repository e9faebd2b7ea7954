"""Numbers of the paper that no training is needed for: its propositions, and Table III."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from basil import theory
from basil.errors import UserError
from basil.experiment.calibrate import calibrate
from basil.recipe.figure import Figure, Number
from basil.reporting.verdict import AGREES, DIFFERS, Verdict
from basil.table import nearest

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: function
    for name in theory.__all__
    if inspect.isfunction(function := getattr(theory, name))
} | {"calibrate": calibrate}


def number_verdicts(figure: Figure) -> list[Verdict]:
    """Each number beside the paper's."""
    known: dict[str, Any] = {}  # what is measured is measured once for all numbers
    return [_verdict(number, figure.name, known) for number in figure.number]


def _verdict(number: Number, source: str, known: dict[str, Any]) -> Verdict:
    value = number.factor * _value(number, number.arguments, source, known)
    if number.over:
        value /= number.factor * _value(number, number.arguments | number.over, source, known)
    fits = abs(value - number.paper) <= number.within * abs(number.paper)
    expected = f"{number.says}: {number.paper:g}"
    if number.within > 0.05:
        expected += f" (± {number.within:.0%})"
    return Verdict("", expected, f"{value:.3g}", AGREES if fits else DIFFERS, number.note)


def _value(
    number: Number, arguments: Mapping[str, Any], source: str, known: dict[str, Any]
) -> float:
    key = f"{number.function} {sorted(arguments.items())}"
    if key not in known:
        known[key] = _call(number.function, arguments, source)
    found = known[key]
    if number.take:
        found = getattr(found, number.take, None)
    if not isinstance(found, int | float):
        raise UserError(
            f"{number.function} gives no number{f' {number.take!r}' * bool(number.take)}"
            f" ({source}, [[figure.number]])"
        )
    return float(found)


def _call(name: str, arguments: Mapping[str, Any], source: str) -> Any:
    if name not in FUNCTIONS:
        raise UserError(
            f"function = {name!r}: {nearest(name, FUNCTIONS)} ({source}, [[figure.number]])"
        )
    function, given = FUNCTIONS[name], dict(arguments)
    try:
        if isinstance(given.get("timing"), Mapping):
            given["timing"] = theory.Timing(**given["timing"])
        inspect.signature(function).bind(**given)
    except TypeError as error:
        raise UserError(f"{name}: {error} ({source}, [[figure.number]])") from error
    return function(**given)
