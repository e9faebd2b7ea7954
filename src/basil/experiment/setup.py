"""What a recipe becomes before it is run: nodes and their samples, what computes, and times."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch

from basil.data import Dataset
from basil.engine.durations import Durations
from basil.errors import UserError
from basil.experiment.node_data import NodeData
from basil.experiment.options import options_of
from basil.experiment.participants import Participants
from basil.experiment.sharing_phase import Shared
from basil.learning.compute import Compute
from basil.learning.metrics import Metric
from basil.learning.pool import Pool
from basil.learning.schedule import SCHEDULES
from basil.protocol.numbering import Numbering
from basil.protocol.rules import RULES, Rule
from basil.recipe import Recipe
from basil.recipe.values import REAL


@dataclass(frozen=True, eq=False)
class Setup:
    """A recipe, ready to run; `set_up` builds it."""

    recipe: Recipe  # its times are numbers, measured where it asks for that
    data: Dataset
    node_data: NodeData
    compute: Compute
    timing: Durations
    test: Pool
    metrics: tuple[Metric, ...]  # what is measured on it beside loss and accuracy
    triggered: Pool | None  # test samples with a backdoor's trigger
    shared: Shared | None  # what came of the data sharing, if there was one
    sources: tuple[Any, ...]  # another setup with the same ones can use this one's data
    corner: object  # and with the same network's input, its pools
    colluders: dict[str, Any] = field(default_factory=dict)  # what they compute once for all

    @property
    def participants(self) -> Participants:
        return self.node_data.participants

    @property
    def numbering(self) -> Numbering:
        return self.node_data.numbering

    @property
    def device(self) -> torch.device:
        return self.compute.device

    @property
    def test_samples(self) -> int:
        """So many of the test set are looked at."""
        return min(len(self.test), self.recipe.record.test_samples or len(self.test))

    @property
    def symmetry_warning(self) -> str | None:
        """A sentence, where canonical form leaves a Byzantine node some symmetries to use."""
        guarded = self.recipe.scheme.descent or not self.recipe.canonical
        return None if guarded else self.compute.symmetries.warning

    @cached_property
    def _schedule(self) -> Callable[[int, float, int], float]:
        learning = self.recipe.learning
        return partial(SCHEDULES[learning.schedule], **options_of(learning, SCHEDULES, "schedule"))

    def rate(self, k: int) -> float:
        learning = self.recipe.learning
        try:
            found = float(self._schedule(k, learning.rate, self.recipe.scheme.rounds))
        except ArithmeticError:  # a power that overflows, a division by 0
            found = math.inf
        if not abs(found) <= REAL:
            raise UserError(
                f"learning.schedule = {learning.schedule!r}: in round {k} the rate is {found:.3g},"
                " and a model in float32 takes at most 3.4e38"
            )
        return found

    @cached_property
    def rule(self) -> Rule:
        scheme = self.recipe.scheme
        return partial(RULES[scheme.rule], **options_of(scheme, RULES, "rule"))

    @property
    def tries(self) -> int:
        """From so many models a node may try its step in a turn; with descent its own is last."""
        return self.recipe.connectivity + 1 if self.recipe.scheme.descent else 1

    @property
    def checks(self) -> int:
        """What else it evaluates: where it may begin; with descent each step's end, and its own."""
        scheme = self.recipe.scheme
        return bool(scheme.extrapolate) + (self.tries + 1) * scheme.descent

    @cached_property
    def patience(self) -> float:
        """Seconds that a node waits for each turn (round, on a graph) that should have happened."""
        size, graph = self.compute.layout.size, self.participants.graph
        steps = self.node_data.steps_in_a_turn()
        if graph:
            turn = self.timing.exchange(size, max(graph.degrees), steps)
        else:
            evaluations = self.recipe.connectivity + self.checks
            turn = self.timing.turn(size, evaluations, self.tries * steps)
        return self.recipe.time.patience * turn

    @cached_property
    def hop_patience(self) -> float:
        """Seconds that a node waits for a hop from group to group."""
        return self.recipe.time.patience * self.timing.hop(
            self.compute.layout.size, self.recipe.reach
        )
