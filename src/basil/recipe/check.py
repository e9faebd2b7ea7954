"""Values that no run can have."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

from basil.errors import UserError
from basil.protocol.numbering import RING, STAGES
from basil.protocol.schemes import RINGS, runs_on
from basil.recipe.schema import MEASURED, Event, Recipe, away_in
from basil.topology import CENTRALITIES

Fault = tuple[str, str]  # section, sentence
SLOWEST = 1e-30  # megabits: a model is underway for a finite time


def check(recipe: Recipe, source: str) -> None:
    """Raise the first thing that is wrong."""
    for section, sentence in _faults(recipe):
        raise UserError(f"{sentence} ({source}, [{section}])")


def _faults(recipe: Recipe) -> Iterator[Fault]:
    scheme, time = recipe.scheme, recipe.time
    yield from _group_faults(recipe)
    yield from _ring_faults(recipe)
    dealt_to = recipe.data.dealt_to
    if dealt_to and dealt_to < recipe.ring.nodes:
        yield (
            "data",
            f"dealt_to = {dealt_to}: {recipe.ring.nodes} nodes take part, so that many or more;"
            " or 0 for these alone",
        )
    yield from _sharing_faults(recipe)
    yield from _not_positive("scheme", scheme, "rounds")
    yield from _negative("scheme", scheme, "extrapolate")
    if scheme.scoring not in ("arrival", "turn"):
        yield "scheme", f"scoring = {scheme.scoring!r:.60}: it must be arrival or turn"
    yield from _not_positive("learning", recipe.learning, "batch", "local_steps", "rate")
    yield from _negative("learning", recipe.learning, "local_epochs")
    yield from _not_positive("attack", recipe.attack, "start")
    for key in ("forward", "step", "distance", "average"):
        value = getattr(time, key)
        if isinstance(value, str) and value != MEASURED:
            yield "time", f'{key} = {value!r:.60}: it must be seconds, or "{MEASURED}"'
    yield from _negative("time", time, "forward", "step", "latency", "distance", "average")
    yield from _not_positive("time", time, "megabits", "patience")
    if time.megabits < SLOWEST:
        yield "time", f"megabits = {time.megabits}: it must be {SLOWEST} or more"
    yield from _not_positive("record", recipe.record, "every")
    yield from _negative("record", recipe.record, "test_samples", "checkpoint")


def _group_faults(recipe: Recipe) -> Iterator[Fault]:
    ring, N = recipe.ring, recipe.ring.nodes
    yield from _not_positive("ring", ring, "groups", "group_rounds")
    if ring.fanout < 0 or ring.fanout == 1:
        yield "ring", f"fanout = {ring.fanout}: it must be 2 or more, or 0 for one ring of groups"
    if recipe.groups > 1 and recipe.ring_size < 2:
        yield (
            "ring",
            f"groups = {ring.groups}: {N} nodes make at most {N // 2} rings of two or more",
        )
    scheme, stages = recipe.scheme.name, ", ".join(STAGES)
    grouped = runs_on(scheme) == RINGS
    for event in ring.events:
        if event.stage not in STAGES:
            yield (
                "ring",
                f"events.stage = {event.stage!r:.60}: it must be one of {stages}",
            )
        if event.stage != RING and not grouped:
            yield (
                "ring",
                f"events.stage = {event.stage!r:.60}: {scheme} has no such stage",
            )
    for stage in recipe.attack.stages:
        if stage not in STAGES:
            yield "attack", f"stages: {stage!r:.60} must be one of {stages}"
    if not grouped and RING not in recipe.attack.stages:
        yield (
            "attack",
            f"stages: {scheme} has no stage but {RING!r}, so nobody would lie",
        )


def _ring_faults(recipe: Recipe) -> Iterator[Fault]:
    ring, N, b, S = recipe.ring, recipe.ring.nodes, recipe.ring.byzantine, recipe.connectivity
    if N < 2:
        yield "ring", f"nodes = {N}: a ring has at least 2 nodes"
    yield from _negative("ring", ring, "byzantine", "dropouts")
    if b >= N:
        yield "ring", f"byzantine = {b}: one of {N} nodes must be benign, so at most {N - 1}"
    if S < 1:
        yield "ring", f"connectivity = {S}: a node needs at least 1 predecessor"
    n = recipe.ring_size
    if S >= n > 1:
        has = f"{n - 1} predecessor{'s' * (n > 2)}"
        rings = f" ({recipe.groups} groups of {N} nodes)" if recipe.groups > 1 else ""
        yield "ring", f"connectivity = {S}: a ring of {n} nodes has only {has}{rings}"
    placements = ("random", "row", "rows", *CENTRALITIES)
    if ring.placement not in placements:
        known = ", ".join(placements)
        yield "ring", f"placement = {ring.placement!r:.60}: it must be one of {known}"
    yield from _not_positive("ring", ring, "row")
    if ring.placement == "rows":
        yield from (("ring", fault) for fault in _row_faults(recipe))
    for event in ring.events:
        yield from (("ring", fault) for fault in _event_faults(event, recipe))
    for node in {event.node for event in ring.events}:
        mine = sorted((e for e in ring.events if e.node == node), key=lambda e: e.leaves)
        for first, second in itertools.pairwise(mine):
            if first.returns is None or first.returns >= second.leaves:
                yield (
                    "ring",
                    f"events: node {node} leaves in round {second.leaves} without having been"
                    " back for a whole round",
                )
    for event in ring.events:
        if away_in(event.leaves, ring.events) >= N:
            yield "ring", f"events: in round {event.leaves} all {N} nodes are away: one must stay"


def _row_faults(recipe: Recipe) -> Iterator[str]:
    b, row = recipe.ring.byzantine, recipe.row
    benign = recipe.ring.nodes - b
    if b and row < 1:
        yield (
            "placement = 'rows': with connectivity = 1 any row leaves the node after it without a"
            " benign predecessor; set a larger connectivity, or row"
        )
    elif b and math.ceil(b / row) > benign:
        yield (
            f"placement = 'rows': {b} Byzantine nodes in rows of {row} make {math.ceil(b / row)},"
            f" too many for {benign} benign nodes to stand between; rows of"
            f" {math.ceil(b / benign)} or more are possible"
        )


def _sharing_faults(recipe: Recipe) -> Iterator[Fault]:
    sharing, N = recipe.sharing, recipe.ring.nodes
    for key in ("alpha", "public"):
        value = getattr(sharing, key)
        if not 0 <= value <= 1:
            yield "sharing", f"{key} = {value}: it is a share, from 0 to 1"
    yield from _not_positive(
        "sharing", sharing, "batches", "groups", "fault_round", "clip", "senders"
    )
    yield from _negative("sharing", sharing, "epsilon", "label_epsilon")
    if not 0 < sharing.delta < 1:
        yield "sharing", f"delta = {sharing.delta}: it must be between 0 and 1"
    if sharing.label_epsilon > 0 and sharing.epsilon == 0:
        yield (
            "sharing",
            f"label_epsilon = {sharing.label_epsilon}: noise on labels comes with noise on samples;"
            " set epsilon too",
        )
    if sharing.alpha > 0 and 2 * sharing.groups > N:
        yield (
            "sharing",
            f"groups = {sharing.groups}: a group of one hides nobody, so {N} nodes make at most"
            f" {N // 2} groups",
        )
    if sharing.alpha > 0 and sharing.senders > N // sharing.groups:
        yield (
            "sharing",
            f"senders = {sharing.senders}: the smallest of {sharing.groups} groups has only"
            f" {N // sharing.groups} nodes",
        )
    if sharing.dummies not in ("noise", "held-out", "file"):
        yield "sharing", f"dummies = {sharing.dummies!r:.60}: it must be noise, held-out or file"
    if sharing.dummies == "file" and not sharing.public_file:
        yield "sharing", 'dummies = "file": name the .npz file in public_file'


def _event_faults(event: Event, recipe: Recipe) -> Iterator[str]:
    N, K = recipe.ring.nodes, recipe.scheme.rounds
    what = f"events: node {event.node} leaves in round {event.leaves}"
    if not 0 <= event.node < N:
        yield f"{what}: nodes are numbered 0 to {N - 1}"
    if not 1 <= event.leaves <= K:
        yield f"{what}: rounds are 1 to {K}"
    if event.returns is not None and event.returns <= event.leaves:
        yield f"{what} and returns in round {event.returns}: that must be later"


def _not_positive(section: str, part: Any, *keys: str) -> Iterator[Fault]:
    for key, value in _numbers(part, keys):
        if not 0 < value < float("inf"):
            yield section, f"{key} = {value}: it must be more than 0"


def _negative(section: str, part: Any, *keys: str) -> Iterator[Fault]:
    for key, value in _numbers(part, keys):
        if not 0 <= value < float("inf"):
            yield section, f"{key} = {value}: it must be 0 or more"


def _numbers(part: Any, keys: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    for key in keys:
        value = getattr(part, key)
        if isinstance(value, int | float):
            yield key, value
