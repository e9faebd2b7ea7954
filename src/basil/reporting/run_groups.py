"""Which runs belong together, and what a reader calls them.

Runs whose recipes differ in nothing but the seed are one *case*.  A case is named by its scheme and
its attack; where two cases would get the same name, the settings in which they differ are added.
"""

import json
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from basil.record.read import Run

SCHEME_TITLES = {
    "acds": "ACDS",
    "balance": "BALANCE",
    "basil": "Basil",
    "basil+": "Basil+",
    "bridge": "BRIDGE",
    "bridge_median": "BRIDGE, median",
    "clipped_gossip": "ClippedGossip",
    "cs+": "CS₊",
    "g_plain": "G-plain",
    "gts": "GTS",
    "ios": "IOS",
    "nna": "NNA",
    "r_plain": "R-plain",
    "r_plain+": "R-plain+",
    "rpel": "RPEL",
    "sketchguard": "SketchGuard",
    "ubar": "UBAR",
}
# In the order of the paper's figures; what is not here follows, by name.
ATTACK_TITLES = {
    "none": "No attack",
    "gaussian": "Gaussian",
    "sign_flip": "Sign flip",
    "layer_sign_flip": "Layer sign flip",
    "hidden": "Hidden",
    "inverse": "Inverse",
    "alie": "A little is enough",
    "ipm": "Inner-product manipulation",
    "rop": "ROP",
}
# What a reader is told of a run beside its name, and what it is called.
SETTINGS = {
    "dataset": "data",
    "partition": "partition",
    "nodes": "nodes",
    "byzantine": "Byzantine",
    "connectivity": "connectivity S",
    "rounds": "rounds",
    "local_steps": "local steps",
    "seed": "seeds",
}

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in the seed alone; all of them finished, or none."""

    scheme: str
    attack: str
    runs: tuple[Run, ...]
    finished: bool

    @property
    def label(self) -> str:
        return self.scheme if self.finished else f"{self.scheme} (unfinished)"

    @property
    def seeds(self) -> list[Any]:
        return [setting(run, "seed") for run in self.runs]


def cases(runs: Iterable[Run]) -> list[RunGroup]:
    """The cases among the runs: attacks in the paper's order, Basil before the other schemes."""
    alike = group(runs, lambda run: (_seedless(run), run.finished))
    first = [members[0] for members in alike.values()]
    attacks = _attack_labels(first)
    schemes = _scheme_labels(first, attacks)
    found = [
        (
            _attack_rank(run),
            scheme_name(run) != "basil",
            RunGroup(scheme, attack, tuple(members), run.finished),
        )
        for members, run, scheme, attack in zip(
            alike.values(), first, schemes, attacks, strict=True
        )
    ]
    found.sort(key=lambda entry: (*entry[:2], entry[2].attack, entry[2].label))
    return [case for *_, case in found]


def setting(run: Run, key: str) -> Any:
    """A setting as the summary has it, or as far as the recipe tells; None where neither does."""
    if run.summary is not None and key in run.summary:
        return run.summary[key]
    if key == "nodes":
        return len(run.order)
    if key == "byzantine":
        return len(run.byzantine)
    recipe = run.recipe
    if key == "dataset":
        return _name(recipe, "data")
    if key in ("scheme", "attack", "partition"):
        return _name(recipe, key) or _leaf(recipe, key)
    return _leaf(recipe, key)


def scheme_name(run: Run) -> str:
    return _plain(setting(run, "scheme") or "unknown scheme")


def attack_name(run: Run) -> str:
    return _plain(setting(run, "attack") or "none")


def title(name: str, titles: dict[str, str]) -> str:
    """What a reader calls a scheme or an attack: layer_sign_flip -> Layer sign flip."""
    if ":" in name:  # a module's, not a word
        return name
    plain = _plain(name)
    words = plain.replace("_", " ")
    return titles.get(plain, words[:1].upper() + words[1:])


def group(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _attack_labels(runs: list[Run]) -> list[str]:
    """Titles, with the attack's options where runs of this set give it different ones."""
    settings = [_settings(run, only="attack") for run in runs]
    labels = []
    for run, own in zip(runs, settings, strict=True):
        same = [
            other
            for rival, other in zip(runs, settings, strict=True)
            if attack_name(rival) == attack_name(run)
        ]
        labels.append(_with(title(attack_name(run), ATTACK_TITLES), own, _differing(same)))
    return labels


def _scheme_labels(runs: list[Run], attacks: list[str]) -> list[str]:
    """Titles, with the settings that tell runs of one scheme under one attack apart.

    Settings that go with the attack (no Byzantine nodes where there is no attack) are no part of
    the name, so that a scheme keeps its name, and its colour, from panel to panel.
    """
    settings = [_settings(run) for run in runs]
    telling: dict[str, set[str]] = {}
    places = group(range(len(runs)), lambda i: (scheme_name(runs[i]), attacks[i], runs[i].finished))
    for (scheme, _, _), members in places.items():
        telling.setdefault(scheme, set()).update(_differing([settings[i] for i in members]))
    return [
        _with(title(scheme_name(run), SCHEME_TITLES), own, telling[scheme_name(run)])
        for run, own in zip(runs, settings, strict=True)
    ]


def _with(name: str, settings: dict[str, Any], keys: set[str]) -> str:
    said = [
        f"{key.rpartition('.')[2].replace('_', ' ')} {settings.get(key, '–')}"
        for key in sorted(keys)
    ]
    return f"{name}, {', '.join(said)}" if said else name


def _differing(settings: list[dict[str, Any]]) -> set[str]:
    """The keys in which they differ, less those that come with the value of another one.

    The options of a rule that one of two rules has, for instance, unless some runs change them.
    """
    keys = {key for each in settings for key in each}
    telling = {key for key in keys if len({repr(each.get(key)) for each in settings}) > 1}
    everywhere = {key for key in telling if all(key in each for each in settings)}
    return {key for key in telling if not any(_comes_with(key, o, settings) for o in everywhere)}


def _comes_with(key: str, other: str, settings: list[dict[str, Any]]) -> bool:
    """Is it there, and always the same, exactly where the other has certain values?"""
    where, elsewhere = ([e for e in settings if (key in e) == here] for here in (True, False))
    apart = {repr(e[other]) for e in where}.isdisjoint(repr(e[other]) for e in elsewhere)
    return bool(elsewhere) and len({repr(e[key]) for e in where}) == 1 and apart


def _settings(run: Run, only: str = "") -> dict[str, Any]:
    """The recipe as dotted keys, less the seed and what only says how a run is recorded."""
    return {
        key: value
        for key, value in _flat(run.recipe).items()
        if key.rpartition(".")[2] != "seed"
        and not key.startswith("record.")
        and (not only or key.startswith(f"{only}."))
    }


def _seedless(run: Run) -> str:
    names = [scheme_name(run), attack_name(run)]
    return json.dumps([names, _settings(run)], sort_keys=True, default=str)


def _flat(recipe: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in recipe.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _leaf(recipe: dict[str, Any], key: str) -> Any:
    for place, value in _flat(recipe).items():
        if place.rpartition(".")[2] == key:
            return value
    return None


def _name(recipe: dict[str, Any], section: str) -> Any:
    value = recipe.get(section)
    return value.get("name") if isinstance(value, dict) else value


def _plain(name: str) -> str:
    return str(name).strip().lower().replace("-", "_").replace(" ", "_")


def _attack_rank(run: Run) -> int:
    known = list(ATTACK_TITLES)
    return known.index(attack_name(run)) if attack_name(run) in known else len(known)
