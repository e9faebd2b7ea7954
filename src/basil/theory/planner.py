"""What a ring needs and what it will cost: the propositions put together for one setting.

Two questions come first: how many predecessors S for a wanted probability of failure, or how
probable failure is with a given S.  Everything else follows from S: what a node sends, stores and
evaluates (Prop. 1), how long training takes on one ring (Prop. 4), on rings in parallel (Basil+)
and on a graph (UBAR, App. G-B), and what sharing data beforehand costs (ACDS, Prop. 3).

One group is one ring, which has nobody to aggregate with: where numbers of groups are compared, it
has Basil's time.
"""

import math
from dataclasses import dataclass
from typing import Any

from basil.errors import UserError
from basil.theory import _checks
from basil.theory.cost import (
    BITS_PER_PARAMETER,
    RoundCost,
    Scoring,
    acds_bits,
    acds_time,
    basil_time,
    basil_time_bound,
    round_cost,
    ubar_time,
)
from basil.theory.groups import (
    group_failure_bound,
    group_failure_exact,
    one_group_failure,
    smallest_group_connectivity,
)
from basil.theory.parallel import (
    Stages,
    basil_plus_stages,
    basil_plus_time,
    basil_plus_time_printed,
)
from basil.theory.resilience import (
    Estimate,
    failure_bound,
    failure_exact,
    failure_simulated,
    smallest_connectivity,
)
from basil.theory.setting import Setting


@dataclass(frozen=True)
class Risk:
    """The probability that S Byzantine nodes come in a row; with S ≥ b + 1 there is none."""

    bound: float
    exact: float
    simulated: Estimate | None
    union: float | None = None  # groups: G times that of one group, (17)
    away: float | None = None  # exact, while d benign nodes are away: on a ring of N − d


@dataclass(frozen=True)
class RingPlan:
    connectivity: int
    by_bound: int | None  # the smallest S by Prop. 2's bound, where a probability was wanted
    risk: Risk
    round: RoundCost


@dataclass(frozen=True)
class GroupPlan:
    groups: int
    size: int
    connectivity: int
    risk: Risk
    stages: Stages  # of one global round
    printed: float  # all rounds, (16) as printed
    turn: float
    arrival: float


@dataclass(frozen=True)
class RingTime:
    """Seconds of all rounds on one ring."""

    bound: float  # (15)
    recursion: float  # (47): until node 1 has received and evaluated the last model
    last_turn: float  # the last turn ends; with x⁰ evaluated by the first S nodes (App. B)


@dataclass(frozen=True)
class UbarTime:
    neighbours: int
    scored: float
    computation: float  # of a node in a round
    total: float


@dataclass(frozen=True)
class SharingCost:
    groups: int
    bits: float
    seconds: float
    of_training: float  # of the bits of all rounds, a multicast counted once


@dataclass(frozen=True)
class GroupChoice:
    """One number of groups, and what it would take."""

    groups: int
    size: int
    connectivity: int
    exact: float
    turn: float
    arrival: float


@dataclass(frozen=True)
class Plan:
    setting: Setting
    link: float  # T_comm
    ring: RingPlan
    turn: RingTime
    arrival: RingTime
    ubar: UbarTime
    grouped: GroupPlan | None
    acds: SharingCost | None  # None where groups of one node have nobody to share with
    choices: tuple[GroupChoice, ...]  # by number of groups

    @property
    def best(self) -> GroupChoice | None:
        """The number of groups that takes the least time, evaluated when the turn comes."""
        return min(self.choices, key=lambda choice: choice.turn, default=None)


def make_plan(setting: Setting) -> Plan:
    """Answer everything that can be asked about one setting, or refuse it in one sentence."""
    setting.check()
    ring = _ring(setting)
    S = ring.connectivity
    return Plan(
        setting=setting,
        link=setting.timing(S).link(setting.parameters),
        ring=ring,
        turn=_ring_time(setting, S, "turn"),
        arrival=_ring_time(setting, S, "arrival"),
        ubar=_ubar(setting, S),
        grouped=None if setting.groups is None else _grouped(setting, setting.groups),
        acds=_sharing(setting),
        choices=tuple(_choices(setting)),
    )


def failure_curve(setting: Setting, upto: int) -> list[tuple[int, float, float]]:
    """(S, bound, exact) for S = 1, …, upto on one ring."""
    N, b = setting.nodes, setting.byzantine
    upto = min(upto, N - 1)
    every = max(1, upto // 60)
    return [(S, failure_bound(N, b, S), failure_exact(N, b, S)) for S in range(1, upto + 1, every)]


def _ring(setting: Setting) -> RingPlan:
    N, b, S, by_bound = setting.nodes, setting.byzantine, _connectivity(setting), None
    assert S is not None  # `check` has refused what is no ring
    if setting.wanted is not None:
        by_bound = smallest_connectivity(N, b, setting.wanted, exact=False)
    cost = round_cost(setting.parameters, nodes=N, connectivity=S, dropouts=setting.dropouts)
    away = None
    if 0 < setting.dropouts < N - b and S < N - setting.dropouts:
        away = failure_exact(N - setting.dropouts, b, S)
    simulated = _simulated(setting, S)
    risk = Risk(failure_bound(N, b, S), failure_exact(N, b, S), simulated, away=away)
    return RingPlan(S, by_bound, risk, cost)


def _simulated(setting: Setting, connectivity: int, groups: int = 1) -> Estimate | None:
    if not setting.trials:
        return None
    N, b = setting.nodes, setting.byzantine
    return failure_simulated(N, b, connectivity, setting.trials, setting.seed, groups)


def _connectivity(setting: Setting, groups: int = 1) -> int | None:
    """S on each of these rings; None where they are too small for what is wanted."""
    N, b, size = setting.nodes, setting.byzantine, setting.nodes // groups
    if setting.wanted is not None:
        return smallest_group_connectivity(N, b, groups, setting.wanted)
    S = b + 1 if setting.connectivity is None else setting.connectivity
    return S if S < size else None


def _grouped(setting: Setting, groups: int) -> GroupPlan:
    N, b, size = setting.nodes, setting.byzantine, setting.nodes // groups
    S = _connectivity(setting, groups)
    if S is None:
        if setting.wanted is None:
            _checks.predecessors(size, setting.connectivity or b + 1)
        if size < 2:
            raise UserError(f"groups = {groups}: {N} nodes would stay alone in their groups")
        least = group_failure_exact(N, b, groups, size - 1)
        raise UserError(
            f"groups = {groups}: even S = {size - 1}, all of a group of {size}, fails with"
            f" probability {least:.2g}; choose fewer groups"
        )
    risk = Risk(
        group_failure_bound(N, b, groups, S),
        group_failure_exact(N, b, groups, S),
        _simulated(setting, S, groups),
        union=groups * one_group_failure(N, b, groups, S),
    )
    where, rings = (setting.timing(S), setting.parameters), _rings(setting, groups, S)
    return GroupPlan(
        groups=groups,
        size=size,
        connectivity=S,
        risk=risk,
        stages=basil_plus_stages(*where, **rings),
        printed=setting.rounds * basil_plus_time_printed(*where, **rings),
        turn=_groups_time(setting, groups, S, "turn"),
        arrival=_groups_time(setting, groups, S, "arrival"),
    )


def _ring_time(setting: Setting, connectivity: int, scoring: Scoring) -> RingTime:
    timing = setting.timing(connectivity)
    where = timing, setting.parameters
    ring: dict[str, Any] = {
        "nodes": setting.nodes,
        "connectivity": connectivity,
        "rounds": setting.laps,
        "scoring": scoring,
    }
    total = basil_time(*where, **ring)
    awaited = connectivity if scoring == "turn" else 1
    closing = timing.link(setting.parameters) + awaited * timing.forward  # (47)
    return RingTime(
        bound=basil_time_bound(*where, **ring),
        recursion=total,
        last_turn=total - closing + connectivity * timing.forward,
    )


def _ubar(setting: Setting, neighbours: int) -> UbarTime:
    where = setting.timing(neighbours), setting.parameters
    scored = setting.times.scored(neighbours)
    alone = ubar_time(*where, neighbours=0, scored=scored)
    total = ubar_time(*where, neighbours=neighbours, scored=scored, rounds=setting.laps)
    return UbarTime(neighbours, scored, alone, total)


def _sharing(setting: Setting) -> SharingCost | None:
    groups, sharing = setting.groups or 1, setting.sharing
    if setting.nodes // groups < 2:
        return None
    what: dict[str, Any] = {
        "nodes": setting.nodes,
        "groups": groups,
        "points": sharing.local_samples,
        "share": sharing.share,
        "batches": sharing.batches,
        "bits_per_point": 1000 * sharing.sample_kilobits,
    }
    bits = acds_bits(**what)
    seconds = acds_time(**what, megabits_per_second=setting.megabits_per_second)
    training = setting.laps * BITS_PER_PARAMETER * setting.parameters
    return SharingCost(groups, bits, seconds, bits / training)


def _choices(setting: Setting) -> list[GroupChoice]:
    N, b = setting.nodes, setting.byzantine
    found = []
    for groups in _divisors(N):
        S = _connectivity(setting, groups)
        if S is None:
            continue
        if groups == 1:
            turn = _ring_time(setting, S, "turn").bound
            arrival = _ring_time(setting, S, "arrival").bound
        else:
            turn = _groups_time(setting, groups, S, "turn")
            arrival = _groups_time(setting, groups, S, "arrival")
        exact = group_failure_exact(N, b, groups, S)
        found.append(GroupChoice(groups, N // groups, S, exact, turn, arrival))
    return found


def _groups_time(setting: Setting, groups: int, connectivity: int, scoring: Scoring) -> float:
    rings = _rings(setting, groups, connectivity)
    timing = setting.timing(connectivity)
    return setting.rounds * basil_plus_time(timing, setting.parameters, **rings, scoring=scoring)


def _rings(setting: Setting, groups: int, connectivity: int) -> dict[str, Any]:
    return {
        "nodes": setting.nodes,
        "groups": groups,
        "connectivity": connectivity,
        "ring_rounds": setting.ring_rounds,
    }


def _divisors(nodes: int) -> list[int]:
    """Numbers of equal groups of two or more."""
    small = [g for g in range(1, math.isqrt(nodes) + 1) if nodes % g == 0]
    return sorted(g for g in {*small, *(nodes // g for g in small)} if g < nodes)
