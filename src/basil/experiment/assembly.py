"""What an experiment is made of: data, computing, times, and what each turn draws."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from basil import data, rng
from basil.data import Dataset
from basil.engine.timing import Timing
from basil.experiment.cast import Cast
from basil.experiment.machine import (
    Machine,
    Own,
    build_network,
    choose_device,
    with_measured_times,
)
from basil.experiment.options import options_of
from basil.experiment.sharing import Shared, share
from basil.learning.batches import draw_batches
from basil.learning.compute import Compute
from basil.learning.cuda import compute_for
from basil.learning.models import corner, cross_entropy, half_squared_error
from basil.learning.pool import Batch, Pool
from basil.learning.schedule import SCHEDULES
from basil.protocol.calendar import Calendar
from basil.protocol.rules import RULES, Rule
from basil.recipe import Recipe


class Assembly:
    """A recipe, assembled: who takes part with which samples, what computes, how long it takes.

    `beside`: another experiment in this process, whose data and kernels are shared where they are
    the same.  `cast`: that of a peer, which holds one node's samples; its sharing is no simulation.
    """

    def __init__(
        self,
        recipe: Recipe,
        own: Own | None = None,
        machine: Machine | None = None,
        beside: "Assembly | None" = None,
        cast: Cast | None = None,
    ) -> None:
        own, machine = own or Own(), machine or Machine()
        self.device = choose_device(machine.device)
        options = options_of(recipe.data, data.DATASETS, "dataset")
        self._sources = own, recipe.data.dataset, options, self.device  # no set depends on the seed
        if beside is not None and beside._sources == self._sources:
            self.data: Dataset = beside.data
        else:
            self.data = own.dataset or data.load(recipe.data.dataset, recipe.seed, **options)
            beside = None
        self.cast = cast or Cast(recipe, self.data)
        self.recipe = recipe
        network = build_network(recipe, self.data, own)
        self._corner = corner(network)
        seen = beside if beside is not None and beside._corner == self._corner else None
        self.test: Pool = seen.test if seen else self._pool(self.data.test)
        triggered = self.cast.triggered(self.data)
        self.triggered = None if triggered is None else self._pool(triggered)
        default = half_squared_error if self.data.classes == 0 else cross_entropy
        self.compute: Compute = compute_for(
            network,
            own.loss or default,
            self._train_pool(seen),
            models=recipe.ring.nodes,
            deterministic=machine.deterministic,
            compiled=machine.compiles(self.turns, self.steps_in_a_turn()),
            batched=machine.batched,
            canonical=recipe.canonical,
            beside=beside.compute if beside else None,
        )
        graph = self.cast.graph
        self.recipe = with_measured_times(recipe, self.compute, max(graph.degrees) if graph else 1)
        self.colluders: dict[str, Any] = {}
        self.schedule: Callable[[int, float, int], float] = partial(
            SCHEDULES[recipe.learning.schedule],
            **options_of(recipe.learning, SCHEDULES, "schedule"),
        )
        self.rule: Rule = partial(
            RULES[recipe.scheme.rule], **options_of(recipe.scheme, RULES, "rule")
        )
        costs = self.recipe.time  # numbers by now, each of them
        self.timing = Timing(
            float(costs.forward),
            float(costs.step),
            costs.megabits,
            costs.latency,
            float(costs.distance),
            float(costs.average),
        )
        self.shared: Shared | None = None
        if self.cast.shares and cast is None:
            self.shared = share(self.recipe, self.cast, self.data, self.compute, self.timing)
            self.cast.received = self.shared.received()

    def _train_pool(self, beside: "Assembly | None") -> Pool:
        """The other experiment's, unless either has samples that the data set has not."""
        plain = self.cast.train is self.data.train
        if plain and beside is not None and beside.cast.train is self.data.train:
            return beside.compute.pool
        return self._pool(self.cast.train)

    def _pool(self, samples: data.Samples) -> Pool:
        return Pool(samples, self.data.mean, self.data.std, self.device, self._corner)

    @property
    def turns(self) -> int:
        """Of benign nodes, in the whole run."""
        members = len(self.cast.members) - len(self.cast.byzantine.intersection(self.cast.members))
        return members * self.recipe.scheme.rounds * self.recipe.laps

    def steps_in_a_turn(self) -> int:
        """SGD steps in a turn of the node with the most data."""
        most = max(self.cast.members, key=lambda node: len(self.cast.samples(node, 1)))
        return len(self._draw(most, 1))

    @cached_property
    def calendar(self) -> Calendar:
        return Calendar(self.recipe.laps, joined=self.recipe.groups > 1)

    def _draw(self, node: int, k: int) -> tuple[Batch, ...]:
        learning, cast = self.recipe.learning, self.cast
        return draw_batches(
            cast.samples(node, self.calendar.global_round(k)),
            rng.stream(self.recipe.seed, "node", node, "round", k, "batch"),
            learning.batch,
            learning.local_steps * (len(cast.benign) if cast.pooled else 1),
            learning.local_epochs,
        )

    def _rate(self, k: int) -> float:
        return float(self.schedule(k, self.recipe.learning.rate, self.recipe.scheme.rounds))

    @cached_property
    def patience(self) -> float:
        """Seconds that a node waits for each turn (round, on a graph) that should have happened."""
        size, steps, graph = self.compute.layout.size, self.steps_in_a_turn(), self.cast.graph
        if graph:
            turn = self.timing.exchange(size, max(graph.degrees), steps)
        else:
            turn = self.timing.turn(size, self.recipe.connectivity, steps)
        return self.recipe.time.patience * turn

    @cached_property
    def hop_patience(self) -> float:
        """Seconds that a node waits for a hop from group to group."""
        return self.recipe.time.patience * self.timing.hop(
            self.compute.layout.size, self.recipe.reach
        )
