"""Whose turn is it?  Answered by each node for itself, without a leader.

A node takes its turn when the model of its nearest predecessor is there.  If that stays away, it
goes on after a deadline: `patience` for each turn that should have happened since the last sign of
life on the ring.  So a silent node costs one patience, not the run, and several silent nodes in a
row cost one each: their successor has counted them.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class TurnDeadline:
    """The latest turn that this node has heard of, and when it heard."""

    patience: float
    step: int
    time: float

    def __copy__(self) -> "TurnDeadline":
        return TurnDeadline(self.patience, self.step, self.time)

    def hear(self, step: int, time: float) -> None:
        if step > self.step:
            self.step, self.time = step, time

    def deadline(self, my_step: int) -> float:
        """When all turns between the one last heard of and mine have had their time."""
        return self.time + (my_step - self.step - 1) * self.patience
