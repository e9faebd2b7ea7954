"""What a plan is asked about: a ring, its network, its times, and what is wanted of it."""

from dataclasses import dataclass
from typing import Final

from basil.errors import UserError
from basil.theory import _checks
from basil.theory.cost import TABLE_III, TABLE_III_UBAR_SCORED, Timing

WANTED: Final = 1e-6  # probability of failure, unless S or another one is given
KEPT: Final = 0.33  # of UBAR's neighbours after its distance-based stage (App. H-B)


@dataclass(frozen=True)
class PartTimes:
    """Seconds of the parts of a turn, for any S."""

    forward: float
    step: float
    distance: float = 0.0  # between two models
    average: float = 0.0  # of the models that UBAR chose
    scored_share: float | None = None
    """How many evaluations UBAR makes for each neighbour; None: of the 33 % kept, and its own."""

    def timing(self, megabits_per_second: float, neighbours: int) -> Timing:
        distance = neighbours * self.distance
        return Timing(self.forward, self.step, megabits_per_second, distance, self.average)

    def scored(self, neighbours: int) -> float:
        """How many models UBAR's performance-based stage evaluates."""
        if self.scored_share is not None:
            return self.scored_share * neighbours
        return max(1, int(KEPT * neighbours)) + 1 if neighbours else 0


PAPER_TIMES: Final = PartTimes(
    forward=TABLE_III.forward,
    step=TABLE_III.step,
    distance=TABLE_III.distance / 10,
    average=TABLE_III.aggregate,
    scored_share=TABLE_III_UBAR_SCORED / 10,
)
"""Table III, measured with S = 10."""


@dataclass(frozen=True)
class Sharing:
    """What each node shares of its data by ACDS; the defaults are those of the paper's remark."""

    share: float = 0.05  # α
    local_samples: int = 500  # D
    sample_kilobits: float = 24.5  # I
    batches: int = 5  # H


@dataclass(frozen=True)
class Setting:
    """What is asked about."""

    nodes: int
    byzantine: int
    connectivity: int | None = None
    failure: float | None = None  # wanted; without it and without S: WANTED
    groups: int | None = None
    dropouts: int = 0
    worst_case: bool = False  # somebody places the Byzantine nodes: all in a row, in one group
    parameters: int = 117_706
    megabits_per_second: float = 100.0
    rounds: int = 500
    ring_rounds: int = 1  # τ
    times: PartTimes = PAPER_TIMES
    sharing: Sharing = Sharing()
    trials: int = 0  # of a simulation
    seed: int = 0

    @property
    def wanted(self) -> float | None:
        if self.connectivity is not None or self.worst_case:
            return None
        return WANTED if self.failure is None else self.failure

    @property
    def laps(self) -> int:
        """Of one ring, in all rounds."""
        return self.rounds * self.ring_rounds

    def timing(self, connectivity: int) -> Timing:
        return self.times.timing(self.megabits_per_second, connectivity)

    def check(self) -> None:
        """Refuse in one sentence what no ring can be."""
        _checks.population(self.nodes, self.byzantine)
        _checks.at_least("dropouts", self.dropouts, 0)
        _checks.at_least("parameters", self.parameters, 1)
        _checks.at_least("rounds", self.rounds, 1)
        _checks.at_least("ring_rounds", self.ring_rounds, 1)
        _checks.at_least("trials", self.trials, 0)
        _checks.at_least("local_samples", self.sharing.local_samples, 1)
        _checks.at_least("sample_kilobits", self.sharing.sample_kilobits, 0)
        if self.groups is not None:
            _checks.group_size(self.nodes, self.groups)
        S, needed = self.connectivity, self.byzantine + 1
        if S is not None:
            _checks.at_least("connectivity", S, 1)
            _checks.predecessors(self.nodes, S)
        if not self.worst_case:
            return
        if self.failure is not None:
            raise UserError(
                f"failure = {self.failure}: nothing is left to chance in the worst case,"
                f" where S = {needed} never fails and less always can"
            )
        if S is not None and S < needed:
            raise UserError(
                f"connectivity = {S}: with all {self.byzantine} Byzantine nodes in a row"
                f" only S = {needed} or more is safe"
            )
        room = self.nodes // (self.groups or 1)
        if needed >= room:
            raise UserError(
                f"byzantine = {self.byzantine}: in the worst case a ring needs S = {needed}"
                f" predecessors, but one of {room} nodes has only {room - 1}"
            )
