"""What training costs in messages and in time: Propositions 1, 3 and 4, and UBAR (App. G-B).

Times are seconds on the critical path, data are bits unless a name says bytes, and d is the number
of parameters of the model.  The paper's T_perf-based, the time to evaluate S models, is S times
`Timing.forward` here, since how many models a turn has to wait for is what the schedules differ in.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from basil.errors import UserError
from basil.theory import _checks

BITS_PER_PARAMETER: Final = 32
BITS_PER_MEGABIT: Final = 10**6

Scoring = Literal["turn", "arrival"]
"""When a node evaluates what it received: all S models when its turn comes (the paper), or each
model while the ring goes on, so that the turn waits only for the last one."""


@dataclass(frozen=True)
class Timing:
    """How long the parts of a turn take."""

    forward: float
    """Seconds to evaluate one received model on a mini-batch."""
    step: float
    """Seconds for the local update, T_SGD."""
    megabits_per_second: float
    """Bandwidth R of each node, up and down."""
    distance: float = 0
    """Seconds of UBAR's distance-based stage over all neighbours, T_dist-based."""
    aggregate: float = 0
    """Seconds to average the models that UBAR chose, T_agg."""

    def __post_init__(self) -> None:
        for name in ("forward", "step", "distance", "aggregate"):
            _checks.at_least(name, getattr(self, name), 0)
        _checks.bandwidth(self.megabits_per_second)

    def link(self, parameters: int) -> float:
        """T_comm = 32 d / R: seconds to send or to receive one model (App. E)."""
        _checks.at_least("parameters", parameters, 1)
        return BITS_PER_PARAMETER * parameters / (self.megabits_per_second * BITS_PER_MEGABIT)


TABLE_III: Final = Timing(
    forward=0.019 / 10, step=0.006, megabits_per_second=100, distance=0.027, aggregate=0.002
)
"""App. H-D, Table III: measured with S = 10 and d = 117,706; R is 10 or 100 Mb/s there."""

TABLE_III_UBAR_SCORED: Final = 0.012 / TABLE_III.forward
"""UBAR's performance-based stage took 0.012 s: 6.3 evaluations as long as Basil's."""


@dataclass(frozen=True)
class RoundCost:
    """What one node does in one round."""

    messages_sent: int
    messages_received: int
    bytes_sent: int
    bytes_received: int
    models_stored: int
    bytes_stored: int
    evaluations: int


def round_cost(parameters: int, *, nodes: int, connectivity: int, dropouts: int = 0) -> RoundCost:
    """Prop. 1: each node sends, receives, stores and evaluates S models a round, hence O(Sd).

    To bear d dropouts a node multicasts to d more successors, and still keeps the latest S only
    (App. C, with S = b + 1).
    """
    _checks.at_least("parameters", parameters, 1)
    _checks.at_least("dropouts", dropouts, 0)
    _checks.predecessors(nodes, connectivity)
    reach = connectivity + dropouts
    if reach >= nodes:
        raise UserError(
            f"dropouts = {dropouts}: with connectivity {connectivity} a model goes to {reach} "
            f"successors, but a ring of {nodes} nodes has only {nodes - 1}"
        )
    model = parameters * BITS_PER_PARAMETER // 8
    return RoundCost(
        messages_sent=reach,
        messages_received=reach,
        bytes_sent=reach * model,
        bytes_received=reach * model,
        models_stored=connectivity,
        bytes_stored=connectivity * model,
        evaluations=connectivity,
    )


def acds_bits(
    *, nodes: int, groups: int, points: int, share: float, batches: int, bits_per_point: float
) -> float:
    """Prop. 3: C = α D I (1/H + n(G+1)), the bits that a group's first node sends and receives.

    It is the worst case: only this node shares with the other groups.  Since nG = N, the cost is
    α D I (1/H + N + n); erratum: it grows with the group size n, where §IV-B says that it falls.
    Erratum: the remark's example (N=100, G=4, D=500, α=5 %, H=5, I=24.5 kbit) costs 76.7 Mbit
    (text: ~75).
    """
    size = _check_sharing(nodes, groups, points, share, batches, bits_per_point)
    return share * points * bits_per_point * (1 / batches + size * (groups + 1))


def acds_time(
    *,
    nodes: int,
    groups: int,
    points: int,
    share: float,
    batches: int,
    bits_per_point: float,
    megabits_per_second: float,
) -> float:
    """Prop. 3: T = (α D I / (H R)) [n²(H + 0.5) + n(H(G − 1) − 1.5)] seconds.

    App. D adds n(n+1)/2 batches in the first round, n² in each of the next H − 1, n(n−2) in the
    dummy round and (G−1)nH in the global sharing.  Erratum: the remark's example at 100 Mb/s takes
    4.62 s (text: 11 s).
    """
    size = _check_sharing(nodes, groups, points, share, batches, bits_per_point)
    _checks.bandwidth(megabits_per_second)
    bits_per_batch = share * points * bits_per_point / batches
    batch = bits_per_batch / (megabits_per_second * BITS_PER_MEGABIT)
    return batch * (size**2 * (batches + 0.5) + size * (batches * (groups - 1) - 1.5))


def basil_turns(
    timing: Timing,
    parameters: int,
    *,
    nodes: int,
    connectivity: int,
    rounds: int = 1,
    scoring: Scoring = "turn",
) -> Iterator[float]:
    """E_n^(k), the time at which each turn ends, turn by turn: the recursion (42)–(46) of App. E.

    Erratum: (43) and (47) multiply T_perf-based, the time for S models, by a number of models; the
    time for one model is meant.  As printed, the recursion would end S(S−1)/2 T_perf-based above
    the bound (15) that it is to prove.
    """
    _check_ring_time(nodes, connectivity, rounds, scoring)
    link = timing.link(parameters)
    return _turn_ends(timing, link, nodes, connectivity, rounds, scoring)


def _turn_ends(
    timing: Timing, link: float, nodes: int, connectivity: int, rounds: int, scoring: Scoring
) -> Iterator[float]:
    now = timing.step  # (42): the first node has the initial model only
    yield now
    for turn in range(1, rounds * nodes):
        received = min(turn, connectivity)  # (43) during the first S turns, then (44)–(46)
        awaited = received if scoring == "turn" else min(received, 1)
        now += link + awaited * timing.forward + timing.step
        yield now


def basil_time(
    timing: Timing,
    parameters: int,
    *,
    nodes: int,
    connectivity: int,
    rounds: int = 1,
    scoring: Scoring = "turn",
) -> float:
    """App. E, (42)–(47) telescoped: τN (T_comm + T_SGD + S T_eval) − S(S−1)/2 T_eval.

    It ends, as (47) does, when node 1 has received and evaluated the last model.  The second term
    is what the first S nodes save, which have not received S models yet.  Scored on arrival, a turn
    waits for one evaluation, and the total is τN (T_comm + T_SGD + T_eval).
    """
    bound = basil_time_bound(
        timing,
        parameters,
        nodes=nodes,
        connectivity=connectivity,
        rounds=rounds,
        scoring=scoring,
    )
    saved = connectivity * (connectivity - 1) // 2 if scoring == "turn" else 0
    return bound - saved * timing.forward


def basil_time_bound(
    timing: Timing,
    parameters: int,
    *,
    nodes: int,
    connectivity: int,
    rounds: int = 1,
    scoring: Scoring = "turn",
) -> float:
    """Prop. 4, (15): τN (T_perf-based + T_comm + T_SGD), with nG = N.

    Scored on arrival, T_perf-based is the time for one model, and the bound is met.
    """
    _check_ring_time(nodes, connectivity, rounds, scoring)
    awaited = connectivity if scoring == "turn" else min(connectivity, 1)
    turn = awaited * timing.forward + timing.link(parameters) + timing.step
    return rounds * nodes * turn


def ubar_time(
    timing: Timing, parameters: int, *, neighbours: int, scored: float, rounds: int = 1
) -> float:
    """App. G-B: K (T_dist-based + T_perf-based + T_agg + T_SGD + S T_comm).

    All nodes work in parallel, and each receives the models of its S neighbours one after another.
    `scored` is how many models the performance-based stage evaluates: those that the distance-based
    stage kept, and the node's own.
    """
    _checks.at_least("neighbours", neighbours, 0)
    _checks.at_least("scored", scored, 0)
    _checks.at_least("rounds", rounds, 0)
    work = timing.distance + scored * timing.forward + timing.aggregate + timing.step
    return rounds * (work + neighbours * timing.link(parameters))


def _check_ring_time(nodes: int, connectivity: int, rounds: int, scoring: str) -> None:
    _checks.population(nodes, 0)
    _checks.predecessors(nodes, connectivity)
    _checks.at_least("rounds", rounds, 1)
    check_scoring(scoring)


def check_scoring(scoring: str) -> None:
    if scoring not in ("turn", "arrival"):
        raise UserError(f'scoring = "{scoring}": it is either "turn" or "arrival"')


def _check_sharing(
    nodes: int, groups: int, points: int, share: float, batches: int, bits_per_point: float
) -> int:
    size = _checks.group_size(nodes, groups)
    if size < 2:
        raise UserError(
            f"groups = {groups}: {nodes} nodes would stay alone in their groups; "
            f"anonymous sharing needs at least 2 in each"
        )
    _checks.at_least("points", points, 1)
    _checks.share("share", share)
    _checks.at_least("batches", batches, 1)
    _checks.at_least("bits_per_point", bits_per_point, 0)
    return size
