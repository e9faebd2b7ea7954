"""How long Basil+ takes: the stages of App. E, their sum (Prop. 4), and rings of rings."""

from typing import NamedTuple, NotRequired, TypedDict, Unpack

from basil.errors import UserError
from basil.theory import _checks
from basil.theory.cost import Scoring, Timing, check_scoring


class Parallel(TypedDict):
    """What is said of the rings by name: the options of `basil_plus_stages`."""

    nodes: int
    groups: int
    connectivity: int
    ring_rounds: NotRequired[int]
    scoring: NotRequired[Scoring]


class Stages(NamedTuple):
    """Seconds of a global round of Basil+, stage by stage."""

    training: float
    aggregation: float
    multicast: float


def basil_plus_stages(
    timing: Timing,
    parameters: int,
    *,
    nodes: int,
    groups: int,
    connectivity: int,
    ring_rounds: int = 1,
    scoring: Scoring = "turn",
) -> Stages:
    """App. E: bounds of the stages of one global round, G groups in parallel for τ rounds each.

    Training n τ (T_perf + T_comm + T_SGD); circular aggregation G (T_perf + S T_comm); multicast
    T_perf + (G − 1) T_comm.  Scored on arrival, T_perf is one evaluation in training and multicast;
    in the aggregation S models come one after the other and are evaluated meanwhile, which takes as
    long as the slower of the two and one more of the other.
    """
    size = _check_groups_time(nodes, groups, connectivity, ring_rounds)
    check_scoring(scoring)
    link, score = timing.link(parameters), connectivity * timing.forward
    passed_on = score + connectivity * link
    if scoring == "arrival" and connectivity:
        score = timing.forward
        passed_on = link + score + (connectivity - 1) * max(link, score)
    return Stages(
        training=size * ring_rounds * (score + link + timing.step),
        aggregation=groups * passed_on,
        multicast=score + (groups - 1) * link,
    )


def basil_plus_time(timing: Timing, parameters: int, **setting: Unpack[Parallel]) -> float:
    """One global round of Basil+ as the sum of its stages.

    (τn + G + 1) T_perf + (SG + τn + G − 1) T_comm + τn T_SGD.  Erratum: Prop. 4 prints SG + τn − 1
    for the messages.  With every T = 1, n = 25, S = 6, τ = 1, sixteen groups take 2.45 times as
    long as one (§VI-B: 1.5; 2.28 with (16) as printed).
    """
    return sum(basil_plus_stages(timing, parameters, **setting))


def aggregation_depth(groups: int, fanout: int = 0) -> int:
    """Hops from group to group, one after the other, until one group has the average of all.

    In one ring of groups, G − 1.  In rings of rings (not in the paper) `fanout` groups join in a
    ring, all such rings at the same time, then their last groups in rings of rings, and so on: at
    most (fanout − 1) ⌈log G⌉, the logarithm to the base fanout.
    """
    _checks.at_least("groups", groups, 1)
    if fanout < 0 or fanout == 1:
        raise UserError(f"fanout = {fanout}: it must be 2 or more, or 0 for one ring of groups")
    ready = [0] * groups  # after how many hops those that stand for a ring have its average
    while len(ready) > 1:
        width = fanout or len(ready)
        circles = [ready[at : at + width] for at in range(0, len(ready), width)]
        ready = [_passed_along(circle) for circle in circles]
    return ready[0]


def _passed_along(circle: list[int]) -> int:
    hops = circle[0]
    for since in circle[1:]:
        hops = max(hops, since) + 1
    return hops


def basil_plus_path(
    timing: Timing, parameters: int, *, fanout: int = 0, **setting: Unpack[Parallel]
) -> float:
    """A bound on one global round where each node's link takes in one model after the other.

    Every hop between groups is S models in, evaluated: `aggregation_depth` of them, one to the
    first group, and the multicast.  Erratum: App. E counts (G − 1) T_comm for the multicast, but a
    node of U_g receives S models over its one link, as those of S_g do in the stage before it.  So
    (τn + G + 1) T_perf + (S(G + 1) + τn) T_comm + τn T_SGD: above Prop. 4 where S > G − 1.
    """
    stages, groups = basil_plus_stages(timing, parameters, **setting), setting["groups"]
    if groups == 1:
        return stages.training
    hop = stages.aggregation / groups
    return stages.training + (aggregation_depth(groups, fanout) + 2) * hop


def basil_plus_time_printed(
    timing: Timing,
    parameters: int,
    *,
    nodes: int,
    groups: int,
    connectivity: int,
    ring_rounds: int = 1,
) -> float:
    """Prop. 4, (16) as printed: (τn + G + 1) T_perf + (SG + τn − 1) T_comm + τn T_SGD.

    Smaller by G T_comm than the sum of the stages that it is derived from: see `basil_plus_time`.
    """
    size = _check_groups_time(nodes, groups, connectivity, ring_rounds)
    turns = ring_rounds * size
    return (
        (turns + groups + 1) * connectivity * timing.forward
        + (connectivity * groups + turns - 1) * timing.link(parameters)
        + turns * timing.step
    )


def _check_groups_time(nodes: int, groups: int, connectivity: int, ring_rounds: int) -> int:
    size = _checks.group_size(nodes, groups)
    _checks.predecessors(size, connectivity)
    _checks.at_least("ring_rounds", ring_rounds, 1)
    return size
