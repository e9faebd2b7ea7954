"""The one place where a recipe meets code: assemble the nodes, run them, record the outcome."""

from collections.abc import Callable, Generator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from basil import data, rng
from basil.attack import View, adversary
from basil.data import Dataset
from basil.engine.collector import unhurried_collector
from basil.engine.process import Absence, Work
from basil.engine.simulate import Observer, Simulator
from basil.engine.timing import Timing
from basil.errors import UserError
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
from basil.experiment.summary import summarise
from basil.learning.batches import draw_batches
from basil.learning.compute import Compute
from basil.learning.cuda import compute_for
from basil.learning.models import cross_entropy, half_squared_error
from basil.learning.pool import Batch, Pool
from basil.learning.schedule import SCHEDULES
from basil.protocol.calendar import Calendar
from basil.protocol.node import Node
from basil.protocol.requests import Protocol
from basil.protocol.rules import RULES, Rule
from basil.protocol.schemes import SCHEMES
from basil.recipe import Recipe, parse, to_toml, to_tree
from basil.recipe.schema import away_in
from basil.record import checkpoint, run_folder
from basil.record.callback import Callback
from basil.record.read import read_run
from basil.record.recorder import Progress, Recorder


class Interrupted(Exception):
    """The run was asked to stop, and left a checkpoint."""


class Experiment:
    """A recipe, assembled: every node with its place, its data and its role.

    `beside`: another experiment in this process, whose data and kernels are shared where they are
    the same.  `cast`: that of a peer, which holds one node's samples; its sharing is no simulation.
    """

    def __init__(
        self,
        recipe: Recipe,
        own: Own | None = None,
        machine: Machine | None = None,
        beside: "Experiment | None" = None,
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
        if self.cast.train is not self.data.train:
            beside = None  # poisoned samples are among them: not for others
        self.recipe = recipe
        self.test: Pool = beside.test if beside else self._pool(self.data.test)
        triggered = self.cast.triggered(self.data)
        self.triggered = None if triggered is None else self._pool(triggered)
        default = half_squared_error if self.data.classes == 0 else cross_entropy
        self.compute: Compute = compute_for(
            build_network(recipe, self.data, own),
            own.loss or default,
            beside.compute.pool if beside else self._pool(self.cast.train),
            models=recipe.ring.nodes,
            deterministic=machine.deterministic,
            compiled=machine.compiles(self.turns, self.steps_in_a_turn()),
            batched=machine.batched,
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
        self._rehearse()

    def _pool(self, samples: data.Samples) -> Pool:
        return Pool(samples, self.data.mean, self.data.std, self.device)

    @property
    def turns(self) -> int:
        """Of benign nodes, in the whole run."""
        members = len(self.cast.members) - len(self.cast.byzantine.intersection(self.cast.members))
        return members * self.recipe.scheme.rounds * self.recipe.laps

    def steps_in_a_turn(self) -> int:
        """SGD steps in a turn of the node with the most data."""
        most = max(self.cast.members, key=lambda node: len(self.cast.samples(node, 1)))
        return len(self._draw(most, 1))

    # -- nodes -------------------------------------------------------------------------------

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

    def start(
        self, node: int, now: float, state: dict[str, Any] | None, rejoin_round: int | None
    ) -> Protocol:
        """The protocol of one node, honest or not."""
        place, cast = self._place(node, now, state, rejoin_round), self.cast
        if node not in cast.byzantine:
            return self._scheme(place)
        assert cast.attack is not None
        loot = {} if self.shared is None else self.shared.loot(node, cast)
        return adversary(
            place,
            self._scheme,
            cast.attack,
            cast.attack_options,
            cast.attack_start,
            self.compute.layout,
            self.recipe.seed,
            self.colluders,
            cast.byzantine,
            cast.weights,
            calendar=self.calendar,
            stages=self.recipe.attack.stages,
            every=cast.attack_every,
            **loot,
        )

    @cached_property
    def calendar(self) -> Calendar:
        return Calendar(self.recipe.laps, joined=self.recipe.groups > 1)

    def _scheme(self, place: Node) -> Protocol:
        scheme = self.recipe.scheme
        return SCHEMES[scheme.name](place, **options_of(scheme, SCHEMES, "name"))

    def _place(
        self,
        node: int,
        now: float = 0.0,
        state: dict[str, Any] | None = None,
        rejoin_round: int | None = None,
    ) -> Node:
        """What this node knows."""
        recipe, seed, graph = self.recipe, self.recipe.seed, self.cast.graph
        return Node(
            id=node,
            ring=self.cast.ring,
            connectivity=recipe.connectivity,
            reach=recipe.reach,
            rounds=recipe.scheme.rounds,
            initial_model=self.compute.initial,
            draw=partial(self._draw, node),
            rate=self._rate,
            key=lambda k: rng.key(seed, "node", node, "round", k, "training"),
            rule=self.rule,
            patience=self.patience,
            grouping=self.cast.grouping,
            laps=recipe.laps,
            hop_patience=self.hop_patience,
            score_on_arrival=recipe.scheme.scoring == "arrival",
            start=now,
            state=state,
            rejoin_round=rejoin_round,
            neighbours=graph.neighbours[node] if graph else (),
            weights=self.cast.weights(node) if graph else {},
            byzantine=recipe.ring.byzantine,
        )

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

    def _rehearse(self) -> None:
        """A wrong option of a scheme or an attack is said before the run, not in the middle."""
        cast, x0 = self.cast, self.compute.initial
        for node in cast.members:
            self._scheme(self._place(node))
        if cast.attack is not None and cast.byzantine:
            first = min(cast.byzantine)
            view = View(
                node=first,
                round=1,
                selected=x0,
                honest=x0,
                layout=self.compute.layout,
                spare=lambda: Batch(np.zeros(1, np.int64)),
                lap=len(cast.ring_of(first)),
                receivers=cast.receivers(first),
                colluders=cast.byzantine,
                weights=cast.weights,
                seed=self.recipe.seed,
                state={},
                shared={},
                benign=dict.fromkeys(cast.benign, x0),
            )
            next(cast.attack.lie(view, **cast.attack_options), None)  # up to its first question

    # -- a run -------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        return {
            **run_folder.surroundings(self.device),
            "parameters": self.compute.layout.size,
            "layout": self.compute.layout.fingerprint,
            "initial_sha256": run_folder.models_sha256({0: self.compute.initial}),
            "classes": self.data.classes,
            **self.cast.facts(),
        }

    def simulator(self, observer: Observer) -> Simulator:
        """All nodes of this experiment, ready to run: after the sharing, where there is one."""
        simulator = Simulator(
            {node: node in self.cast.byzantine for node in self.cast.members},
            self.start,
            self.compute,
            self.timing,
            observer,
            tuple(Absence(e.node, e.leaves, e.returns, e.stage) for e in self.cast.events),
        )
        if self.shared is not None:
            simulator.now = self.shared.seconds
            simulator.done.add(self.shared.work)
        return simulator

    def run(
        self,
        folder: Path,
        progress: Callable[[Progress], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
        resume: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> dict[str, Any]:
        """Simulate, into a new run folder or on from a checkpoint.  Returns the summary."""
        course = self.course(folder, progress, stop, resume, callbacks)
        with unhurried_collector():
            while True:
                try:
                    next(course)
                except StopIteration as end:
                    summary: dict[str, Any] = end.value
                    return summary

    def course(
        self,
        folder: Path,
        progress: Callable[[Progress], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
        resume: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> Generator[bool, None, dict[str, Any]]:
        """The same, instant by instant: so that several runs can share a device."""
        recorder = self.recorder(folder, progress, stop, callbacks=callbacks)
        simulator = self.simulator(recorder)
        if resume:
            saved = checkpoint.load(folder / run_folder.CHECKPOINT, self.device)
            recorder.restore(saved["recorder"])
            simulator.restore(saved["engine"])
        else:
            run_folder.create(folder, to_toml(self.recipe), self.facts())
            if self.shared is not None:
                self.shared.write(folder)
        for callback in callbacks:
            callback.begin(folder, to_tree(self.recipe), recorder.round)
        with recorder:
            for going_on in simulator.instants():
                if not going_on:
                    raise Interrupted(str(folder))
                yield True
            recorder.finish(simulator)
        shared = {} if self.shared is None else {"sharing": self.shared.facts()}
        summary = self.conclude(folder, recorder, simulator.done, shared)
        (folder / run_folder.CHECKPOINT).unlink(missing_ok=True)
        for callback in callbacks:
            callback.end(summary)
        return summary

    def conclude(
        self, folder: Path, recorder: Recorder, done: Work, more: dict[str, Any]
    ) -> dict[str, Any]:
        """Write the final models and the summary, the last thing that a run leaves."""
        steps = self.steps_in_a_turn()
        summary = {**summarise(self.recipe, self.cast, self.data, steps, recorder, done), **more}
        if self.recipe.record.models:
            run_folder.save_models(folder / run_folder.MODELS, recorder.models, self.compute.layout)
        run_folder.write_json(folder / run_folder.SUMMARY, summary)
        return summary

    def recorder(
        self,
        folder: Path,
        progress: Callable[[Progress], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
        expected: Callable[[int], int] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Recorder:
        """Who writes down what the nodes of this cast report; `expected`: how many in a round."""
        recipe, cast = self.recipe, self.cast
        return Recorder(
            folder,
            ring_of=cast.ring_of,
            nodes=[node for node in cast.ring.order if node in cast.members],
            byzantine=cast.byzantine,
            rounds=recipe.scheme.rounds,
            expected=expected or (lambda k: len(cast.members) - away_in(k, cast.events)),
            every=recipe.record.every,
            compute=self.compute,
            test=self.test,
            test_samples=min(len(self.test), recipe.record.test_samples or len(self.test)),
            triggered=self.triggered,
            checkpoint_seconds=recipe.record.checkpoint,
            progress=progress,
            stop=stop,
            callbacks=callbacks,
        )


def take_up(
    folder: Path,
    own: Own | None = None,
    machine: Machine | None = None,
    beside: Experiment | None = None,
) -> Experiment:
    """The experiment of an interrupted run, ready to be resumed."""
    past = read_run(folder)
    if past.summary is not None:
        raise UserError(f"{folder} is a finished run: there is nothing to resume")
    if not (folder / run_folder.CHECKPOINT).exists():
        raise UserError(f"{folder} was stopped before its first checkpoint: run it anew")
    recipe = parse(past.recipe, f"{folder}/{run_folder.RECIPE}")
    experiment = Experiment(recipe, own, machine, beside)
    for what in ("layout", "initial_sha256"):
        if experiment.facts()[what] != past.facts.get(what):
            raise UserError(f"{folder} was run with another model: resume it with the same one")
    return experiment


def resume(
    folder: Path,
    own: Own | None = None,
    machine: Machine | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Take up an interrupted run where its last checkpoint left it."""
    experiment = take_up(folder, own, machine)
    return experiment.run(folder, progress, stop, resume=True, callbacks=callbacks)
