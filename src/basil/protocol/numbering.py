"""How the sends of a run are numbered, and which stage of which global round a number belongs to.

On one ring a model carries the number of its round.  Where G rings work in parallel (Basil+), a
global round holds τ rounds of each ring, and then two more occasions on which a node may send:

    k = 1:  1 … τ  ring    τ + 1  aggregation    τ + 2  multicast      k = 2:  τ + 3 …

So the numbers that a node uses only ever increase, and it never sends two models under one number:
two that differ are a lie that the receivers can prove.
"""

from dataclasses import dataclass
from typing import Final

RING: Final = "ring"
AGGREGATION: Final = "aggregation"
MULTICAST: Final = "multicast"
STAGES: Final = (RING, AGGREGATION, MULTICAST)


@dataclass(frozen=True)
class Numbering:
    """`laps`: τ, rounds of a ring in a global round.  `joined`: are there other rings?"""

    laps: int = 1
    joined: bool = False

    @property
    def _numbers(self) -> int:
        """Of one global round."""
        return self.laps + (2 if self.joined else 0)

    def number(self, ring_round: int) -> int:
        """Of what is sent in this round of a ring."""
        before, lap = divmod(ring_round - 1, self.laps)
        return before * self._numbers + lap + 1

    def aggregation(self, k: int) -> int:
        return (k - 1) * self._numbers + self.laps + 1

    def multicast(self, k: int) -> int:
        return (k - 1) * self._numbers + self.laps + 2

    def ring_round(self, number: int) -> int | None:
        """The round of a ring that a number belongs to; None if it is of another stage, or none."""
        if number < 1 or not self.joined:
            return number if number >= 1 else None
        k, stage, place = self._place(number)
        return (k - 1) * self.laps + place + 1 if stage == RING else None

    def stage(self, number: int) -> tuple[int, str]:
        """The global round and the stage that a number belongs to."""
        return self._place(number)[:2]

    def global_round(self, ring_round: int) -> int:
        return (ring_round - 1) // self.laps + 1

    def last_lap(self, k: int) -> int:
        """The last round of a ring in global round k."""
        return k * self.laps

    def ends_laps(self, ring_round: int) -> bool:
        """Is this round of a ring the last one of its global round?"""
        return ring_round % self.laps == 0

    def _place(self, number: int) -> tuple[int, str, int]:
        before, place = divmod(number - 1, self._numbers)
        stage = RING if place < self.laps else STAGES[place - self.laps + 1]
        return before + 1, stage, place
