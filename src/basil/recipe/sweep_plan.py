"""What the file of a sweep may say: a recipe, and beside it what is to be varied.

    [sweep]
    recipe = "demo"                     # a shipped name or a file; without it, this file's sections
    seeds = [0, 1, 2]
    draws = 10                          # of the keys under [sweep.random]
    draw_seed = 0

    [sweep.grid]                        # all combinations
    "ring.connectivity" = [3, 5, 7]

    [sweep.random]                      # each drawn by itself, `draws` times
    "learning.rate" = { low = 0.01, high = 0.3, log = true }
    "attack.name" = ["gaussian", "hidden"]

Every combination of the grid is run with every draw and every seed.
"""

import itertools
import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from basil import rng
from basil.errors import UserError
from basil.recipe.read import PLANS, Changes, Source, change, dotted, parse, tree_of
from basil.recipe.schema import Recipe
from basil.recipe.values import known_keys, shown, typed

KEYS = {
    "recipe": str,
    "seeds": tuple[int, ...],
    "draws": int,
    "draw_seed": int,
    "grid": dict,
    "random": dict,
}
RANGE = {"low": float, "high": float, "log": bool}


@dataclass(frozen=True)
class Point:
    """One run of a sweep: what is varied, and the recipe, or the sentence why it is none."""

    varied: dict[str, Any]
    seed: int
    recipe: Recipe | None
    fault: str = ""


def load_sweep(described: Source, overrides: Changes = ()) -> list[Point]:
    """All runs of a sweep.  A combination that no run can have is among them, with its fault."""
    tree, name = tree_of(described)
    plan = tree.get("sweep")
    source = f"{name}, [sweep]"
    if not isinstance(plan, Mapping):
        raise UserError(f"{name} describes no sweep: it has no section [sweep]")
    known_keys(plan, KEYS, source)
    base = {key: value for key, value in tree.items() if key not in PLANS}
    if "recipe" in plan:
        if base:
            raise UserError(f"recipe = {plan['recipe']!r}: then leave [{min(base)}] out ({source})")
        base, _ = tree_of(typed(plan["recipe"], str, "recipe", source))
    base = {key: value for key, value in base.items() if key not in (*PLANS, "compare")}
    change(base, overrides)
    seeds = typed(plan.get("seeds", [base.get("seed", 0)]), tuple[int, ...], "seeds", source)
    varied = [a | b for a, b in itertools.product(_grid(plan, source), _random(plan, source))]
    if not seeds or (varied == [{}] and len(seeds) == 1):
        raise UserError(f"nothing is varied: name values under [sweep.grid], or seeds ({source})")
    points = [_point(base, values, seed) for values in varied for seed in dict.fromkeys(seeds)]
    if all(point.recipe is None for point in points):
        raise UserError(points[0].fault)
    return points


def _point(base: dict[str, Any], varied: dict[str, Any], seed: int) -> Point:
    tree = deepcopy(base)
    tree["seed"] = seed
    change(tree, varied)
    try:
        return Point(varied, seed, parse(tree, said(varied) or "recipe"))
    except UserError as error:
        return Point(varied, seed, None, str(error))


def said(varied: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {shown(value)}" for key, value in varied.items())


def _grid(plan: Mapping[str, Any], source: str) -> list[dict[str, Any]]:
    keys = _table(plan, "grid", source)
    for key, values in keys.items():
        if not isinstance(values, list | tuple) or not values:
            raise UserError(f"{key} = {shown(values)}: it must be a list of values ({source})")
    return [dict(zip(keys, each, strict=True)) for each in itertools.product(*keys.values())]


def _random(plan: Mapping[str, Any], source: str) -> list[dict[str, Any]]:
    keys = _table(plan, "random", source)
    draws = typed(plan.get("draws", 0), int, "draws", source)
    if bool(keys) != (draws > 0):
        raise UserError(f"draws = {draws}: it goes with keys under [sweep.random] ({source})")
    if not keys:
        return [{}]
    seed = typed(plan.get("draw_seed", 0), int, "draw_seed", source)
    # A stream for each key and draw: more draws, or another key, change none of the others.
    return [
        {
            key: _draw(key, values, rng.stream(seed, "sweep", key, number), source)
            for key, values in keys.items()
        }
        for number in range(draws)
    ]


def _draw(key: str, values: Any, stream: np.random.Generator, source: str) -> Any:
    if isinstance(values, list) and values:
        return values[int(stream.integers(len(values)))]
    if not isinstance(values, Mapping) or not {"low", "high"} <= values.keys():
        raise UserError(f"{key}: give a list, or {{ low = …, high = … }} ({source})")
    known_keys(values, RANGE, source)
    low, high = (typed(values[end], RANGE[end], f"{key}.{end}", source) for end in ("low", "high"))
    log = typed(values.get("log", False), bool, f"{key}.log", source)
    if low >= high or (log and low <= 0):
        raise UserError(
            f"{key}: low = {low}, high = {high}: low must be less, and above 0 where log ({source})"
        )
    whole = isinstance(values["low"], int) and isinstance(values["high"], int)
    if whole and not log:
        return int(stream.integers(low, high, endpoint=True))
    found = float(
        stream.uniform(math.log(low), math.log(high)) if log else stream.uniform(low, high)
    )
    found = math.exp(found) if log else found
    return round(found) if whole else float(f"{found:.6g}")


def _table(plan: Mapping[str, Any], key: str, source: str) -> dict[str, Any]:
    values = plan.get(key, {})
    if not isinstance(values, Mapping):
        raise UserError(f"{key} must be a section [sweep.{key}] ({source})")
    # ring.connectivity = [3, 5] may be written with or without quotation marks.
    return dict(dotted(values, whole={"low", "high"}))
