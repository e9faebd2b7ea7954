"""The one place where a recipe meets code: assemble the nodes, run them, record the outcome."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from basil import data, rng
from basil.attack import Attack, DataAttack, View, adversary, armed, poisoned
from basil.data import PARTITIONS, Dataset, Samples
from basil.engine.process import Absence
from basil.engine.simulate import Observer, Simulator
from basil.engine.timing import Timing
from basil.errors import UserError
from basil.learning.batches import draw_batches
from basil.learning.compute import Compute
from basil.learning.cuda import compute_for
from basil.learning.models import MODELS, Loss, cross_entropy, half_squared_error, initialise
from basil.learning.pool import Batch, Pool
from basil.learning.schedule import SCHEDULES
from basil.protocol.aggregate import distances, weighted_mean
from basil.protocol.node import Node
from basil.protocol.requests import Protocol
from basil.protocol.rules import RULES, Rule
from basil.protocol.schemes import GRAPH_SCHEMES, POOLED_SCHEMES, RING_SCHEMES, SCHEMES
from basil.recipe import MEASURED, NO_ATTACK, Event, Recipe, parse, to_toml, with_timing
from basil.recipe.schema import away_in
from basil.record import checkpoint, run_folder
from basil.record.read import read_run
from basil.record.recorder import Progress, Recorder
from basil.topology import GRAPHS, WEIGHTS, Graph, Population, Ring, agree_on_order, build_graph


class Interrupted(Exception):
    """The run was asked to stop, and left a checkpoint."""


@dataclass(frozen=True)
class Own:
    """What a user brings from Python instead of naming it in the recipe."""

    model: nn.Module | None = None
    loss: Loss | None = None
    dataset: Dataset | None = None


class Experiment:
    """A recipe, assembled: every node with its place, its data and its role."""

    def __init__(
        self,
        recipe: Recipe,
        own: Own | None = None,
        device: str = "auto",
        *,
        deterministic: bool = False,
        compiled: bool = False,
        beside: "Experiment | None" = None,
    ) -> None:
        """`deterministic`, `compiled`: see `learning.cuda`; they matter on a GPU only.

        `beside`: another experiment in this process, whose data and kernels are shared where they
        are the same.
        """
        own = own or Own()
        self.device = choose_device(device)
        options = _options_of(recipe, data.DATASETS, "dataset")
        self._sources = own, recipe.data.dataset, options, self.device  # no set depends on the seed
        if beside is not None and beside._sources == self._sources:
            self.data: Dataset = beside.data
        else:
            self.data = own.dataset or data.load(recipe.data.dataset, recipe.seed, **options)
            beside = None
        self.ring = Ring(agree_on_order(range(recipe.ring.nodes), recipe.seed))
        self.byzantine = choose_byzantine(recipe, self.ring)
        self.graph = self._connect(recipe)
        # Where one node holds all data, the others have no part.
        self.pooled = recipe.scheme.name in POOLED_SCHEMES
        self.benign = [node for node in self.ring.order if node not in self.byzantine]
        self.members = [min(self.benign)] if self.pooled else list(range(recipe.ring.nodes))
        self.local = self._deal(recipe)
        means = self.data.mean, self.data.std
        self._arm(recipe)
        samples = self._poison(recipe)
        if samples is not self.data.train:
            beside = None  # this pool is not for others, nor is any other for this
        # A copy: the user's own network stays as it is.
        module = self._build(recipe) if own.model is None else copy.deepcopy(own.model)
        default = half_squared_error if self.data.classes == 0 else cross_entropy
        self.test: Pool = beside.test if beside else Pool(self.data.test, *means, self.device)
        train = beside.compute.pool if beside else Pool(samples, *means, self.device)
        self.compute: Compute = compute_for(
            module,
            own.loss or default,
            train,
            models=recipe.ring.nodes,
            deterministic=deterministic,
            compiled=compiled,
            beside=beside.compute if beside else None,
        )
        self.recipe = self._measured(recipe)
        self.colluders: dict[str, Any] = {}
        self.schedule: Callable[[int, float, int], float] = partial(
            SCHEDULES[recipe.learning.schedule], **_options_of(recipe, SCHEDULES, "schedule")
        )
        self.rule: Rule = partial(RULES[recipe.scheme.rule], **_options_of(recipe, RULES, "rule"))
        costs = self.recipe.time  # numbers by now, each of them
        self.timing = Timing(
            float(costs.forward),
            float(costs.step),
            costs.megabits,
            costs.latency,
            float(costs.distance),
            float(costs.average),
        )
        self._rehearse_attack()
        for node in self.members:  # a wrong option is said now, not in the middle
            self._scheme(self._place(node))

    def _connect(self, recipe: Recipe) -> Graph | None:
        if recipe.scheme.name not in GRAPH_SCHEMES:
            return None
        people = Population(self.ring.order, self.byzantine)
        known = GRAPHS.options(recipe.graph.name)
        options = {key: value for key, value in recipe.graph.options.items() if key in known}
        return build_graph(recipe.graph.name, people, recipe.seed, options)

    def _deal(self, recipe: Recipe) -> list[np.ndarray[Any, Any]]:
        deal = PARTITIONS[recipe.data.partition]
        options = _options_of(recipe, PARTITIONS, "partition")
        stream = rng.stream(recipe.seed, "partition")
        parts = deal(self.data.train.y, recipe.ring.nodes, stream, **options)
        largest = max(map(len, parts))
        if recipe.learning.batch > largest:
            raise UserError(
                f"learning.batch = {recipe.learning.batch}: no node has more than {largest} samples"
            )
        return list(parts)

    def _arm(self, recipe: Recipe) -> None:
        """The attack of the recipe, and from which round on; None where it names none."""
        self.attack: Attack | None = None
        self.attack_start, self.attack_options = 1, dict[str, Any]()
        if recipe.attack.name != NO_ATTACK:
            part = recipe.attack
            self.attack, self.attack_start, self.attack_options = armed(
                part.name, part.start, part.options
            )

    def _poison(self, recipe: Recipe) -> Samples:
        """The training samples, followed by those that Byzantine nodes use instead of their own."""
        self.poisoned: dict[int, np.ndarray[Any, Any]] = {}
        self.triggered: Pool | None = None
        attack, options = self.attack, self.attack_options
        if not isinstance(attack, DataAttack):
            return self.data.train
        if attack.triggered is not None:
            samples = attack.triggered(self.data.test, self.data, **options)
            self.triggered = Pool(samples, self.data.mean, self.data.std, self.device)
        theirs = {node: self.local[node] for node in sorted(self.byzantine)}
        train, self.poisoned = poisoned(attack, self.data, theirs, recipe.seed, options)
        return train

    def _build(self, recipe: Recipe) -> nn.Module:
        build = MODELS[recipe.learning.model]
        options = _options_of(recipe, MODELS, "model")
        shape = self.data.train.x.shape[1:]
        if (self.data.classes == 0) != (recipe.learning.model == "linear"):
            kind = "regression" if self.data.classes == 0 else "classification"
            raise UserError(
                f"learning.model = {recipe.learning.model!r} does not suit {kind}"
                f" (data set {self.data.name}): 'linear' is for regression, the others classify"
            )
        module: nn.Module = build(shape, self.data.classes, **options)
        initialise(module, rng.torch_stream(recipe.seed, "initial model"))
        return module

    def _measured(self, recipe: Recipe) -> Recipe:
        """Fill in the times that the recipe asks to have measured on this machine."""
        times = ("forward", "step", "distance", "average")
        asked = [key for key in times if getattr(recipe.time, key) == MEASURED]
        if not asked:
            return recipe
        batch = Batch(np.arange(recipe.learning.batch))
        model = self.compute.initial
        heard = model.repeat(max(self.graph.degrees) if self.graph else 1, 1)
        weights = heard[:, 0] * 0
        jobs: dict[str, Callable[[], object]] = {
            "forward": lambda: self.compute.score(model, [batch]),
            "step": lambda: self.compute.train(model, [batch], 0.0, lambda: 0),
            "distance": lambda: distances(model, heard[:1]),
            "average": lambda: weighted_mean(model, heard, weights),
        }
        return with_timing(recipe, {key: self._seconds(jobs[key]) for key in asked})

    def _seconds(self, work: Callable[[], object], times: int = 20) -> float:
        """The median time of some work, warmed up."""
        durations = []
        for _ in range(times + 3):
            begin = time.perf_counter()
            work()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            durations.append(time.perf_counter() - begin)
        return float(np.median(durations[3:]))

    def steps_in_a_turn(self) -> int:
        """SGD steps in a turn of the node with the most data."""
        most = max(self.members, key=lambda node: len(self.local[node]))
        return len(self._draw(most, 1))

    def _draw(self, node: int, k: int) -> tuple[Batch, ...]:
        learning = self.recipe.learning
        stream = rng.stream(self.recipe.seed, "node", node, "round", k, "batch")
        return draw_batches(
            self._samples(node, k),
            stream,
            learning.batch,
            learning.local_steps * (len(self.benign) if self.pooled else 1),
            learning.local_epochs,
        )

    def _samples(self, node: int, k: int) -> np.ndarray[Any, Any]:
        """What a node draws from in round k."""
        if self.pooled:
            return self._pool
        lies = node in self.poisoned and k >= self.attack_start
        return self.poisoned[node] if lies else self.local[node]

    @cached_property
    def _pool(self) -> np.ndarray[Any, Any]:
        """The data of all benign nodes."""
        return np.concatenate([self.local[node] for node in self.benign])

    def _rate(self, k: int) -> float:
        return float(self.schedule(k, self.recipe.learning.rate, self.recipe.scheme.rounds))

    def start(
        self, node: int, now: float, state: dict[str, Any] | None, rejoin_round: int | None
    ) -> Protocol:
        """The protocol of one node, honest or not."""
        place = self._place(node, now, state, rejoin_round)
        if node not in self.byzantine:
            return self._scheme(place)
        assert self.attack is not None
        return adversary(
            place,
            self._scheme,
            self.attack,
            self.attack_options,
            self.attack_start,
            self.compute.layout,
            self.recipe.seed,
            self.colluders,
            self.byzantine,
            self._weights,
        )

    def _weights(self, node: int) -> dict[int, float]:
        """Whose models a node takes in, and how much each counts: on a ring, all alike."""
        if self.graph:
            return dict(WEIGHTS[self.recipe.graph.weights](self.graph, node))
        reach = self.recipe.reach - self.recipe.connectivity + _connectivity(self.recipe)
        return dict.fromkeys(self.ring.behind(node, reach), 1 / reach)

    def _receivers(self, node: int) -> tuple[int, ...]:
        if self.graph:
            return self.graph.neighbours[node]
        return self.ring.ahead(node, self.recipe.reach)

    def _scheme(self, place: Node) -> Protocol:
        recipe = self.recipe
        return SCHEMES[recipe.scheme.name](place, **_options_of(recipe, SCHEMES, "name"))

    def _place(
        self,
        node: int,
        now: float = 0.0,
        state: dict[str, Any] | None = None,
        rejoin_round: int | None = None,
    ) -> Node:
        """What this node knows."""
        recipe, seed, graph = self.recipe, self.recipe.seed, self.graph
        weights = WEIGHTS[recipe.graph.weights]
        return Node(
            id=node,
            ring=self.ring,
            connectivity=recipe.connectivity,
            reach=recipe.reach,
            rounds=recipe.scheme.rounds,
            initial_model=self.compute.initial,
            draw=partial(self._draw, node),
            rate=self._rate,
            key=lambda k: rng.key(seed, "node", node, "round", k, "training"),
            rule=self.rule,
            patience=self.patience,
            score_on_arrival=recipe.scheme.scoring == "arrival",
            start=now,
            state=state,
            rejoin_round=rejoin_round,
            neighbours=graph.neighbours[node] if graph else (),
            weights=weights(graph, node) if graph else {},
            byzantine=recipe.ring.byzantine,
        )

    @cached_property
    def patience(self) -> float:
        """Seconds that a node waits for each turn (round, on a graph) that should have happened."""
        size, steps = self.compute.layout.size, self.steps_in_a_turn()
        if self.graph:
            turn = self.timing.exchange(size, max(self.graph.degrees), steps)
        else:
            turn = self.timing.turn(size, self.recipe.connectivity, steps)
        return self.recipe.time.patience * turn

    def _rehearse_attack(self) -> None:
        """Call the attack once on x⁰: a wrong option is said before the run, not in the middle."""
        if self.attack is not None and self.byzantine:
            x0, seed = self.compute.initial, self.recipe.seed
            first = min(self.byzantine)
            view = View(
                node=first,
                round=1,
                selected=x0,
                honest=x0,
                layout=self.compute.layout,
                receivers=self._receivers(first),
                colluders=self.byzantine,
                weights=self._weights,
                seed=seed,
                state={},
                shared={},
                benign={node: x0 for node in self.ring.order if node not in self.byzantine},
            )
            self.attack(view, **self.attack_options)

    def facts(self) -> dict[str, Any]:
        return {
            **run_folder.surroundings(self.device),
            "parameters": self.compute.layout.size,
            "layout": self.compute.layout.fingerprint,
            "initial_sha256": run_folder.models_sha256({0: self.compute.initial}),
            "order": list(self.ring.order),
            "byzantine": sorted(self.byzantine),
            "classes": self.data.classes,
            **self._graph_facts(),
        }

    def _graph_facts(self) -> dict[str, Any]:
        if self.graph is None:
            return {}
        degrees = self.graph.degrees
        return {
            "graph": {
                "edges": sum(degrees) // 2,
                "degrees": [min(degrees), max(degrees)],
                "redraws": self.graph.redraws,
                # Benign nodes with as many liars as honest neighbours: no rule can help them.
                "outnumbered": sum(
                    2 * len(self.byzantine.intersection(self.graph.neighbours[node]))
                    >= self.graph.degree(node)
                    for node in self.benign
                ),
            }
        }

    def simulator(self, observer: Observer) -> Simulator:
        """All nodes of this experiment, ready to run."""
        return Simulator(
            {node: node in self.byzantine for node in self.members},
            self.start,
            self.compute,
            self.timing,
            observer,
            tuple(Absence(e.node, e.leaves, e.returns) for e in self._events),
        )

    @property
    def _events(self) -> tuple[Event, ...]:
        return () if self.pooled else self.recipe.ring.events

    def run(
        self,
        folder: Path,
        progress: Callable[[Progress], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
        resume: bool = False,
    ) -> dict[str, Any]:
        """Simulate, into a new run folder or on from a checkpoint.  Returns the summary."""
        recipe = self.recipe
        samples = len(self.test)
        if recipe.record.test_samples:
            samples = min(samples, recipe.record.test_samples)
        recorder = Recorder(
            folder,
            ring=self.ring,
            nodes=[node for node in self.ring.order if node in self.members],
            byzantine=self.byzantine,
            rounds=recipe.scheme.rounds,
            expected=lambda k: len(self.members) - away_in(k, self._events),
            every=recipe.record.every,
            compute=self.compute,
            test=self.test,
            test_samples=samples,
            triggered=self.triggered,
            checkpoint_seconds=recipe.record.checkpoint,
            progress=progress,
            stop=stop,
        )
        simulator = self.simulator(recorder)
        if resume:
            saved = checkpoint.load(folder / run_folder.CHECKPOINT, self.device)
            recorder.restore(saved["recorder"])
            simulator.restore(saved["engine"])
        else:
            run_folder.create(folder, to_toml(recipe), self.facts())
        with recorder:
            if not simulator.run():
                raise Interrupted(str(folder))
            recorder.finish(simulator)
        return self._conclude(folder, recorder, simulator)

    def _conclude(self, folder: Path, recorder: Recorder, simulator: Simulator) -> dict[str, Any]:
        recipe, counts = self.recipe, recorder.counts
        choices = counts["choices"]
        on_ring = recipe.scheme.name in RING_SCHEMES
        summary = {
            "scheme": recipe.scheme.name,
            "rule": recipe.scheme.rule,
            "attack": recipe.attack.name,
            "dataset": self.data.name,
            "partition": recipe.data.partition,
            "classes": self.data.classes,
            "nodes": recipe.ring.nodes,
            "byzantine": len(self.byzantine),
            "connectivity": _connectivity(recipe) if on_ring else None,
            "graph": recipe.graph.name if self.graph else None,
            "rounds": recipe.scheme.rounds,
            "local_steps": self.steps_in_a_turn(),
            "seed": recipe.seed,
            "accuracy": recorder.last["accuracy"],
            "loss": recorder.last["loss"],
            # Shares of the turns in which one model was chosen: schemes that average choose none.
            "selection": {
                what: counts[what] / choices if choices else None
                for what in ("byzantine", "nearest")
            },
            "messages": {
                "count": simulator.done.messages,
                "bytes": simulator.done.bytes,
            },
            "work": {
                "evaluations": simulator.done.evaluations,
                "steps": simulator.done.steps,
                "distances": simulator.done.distances,
            },
            "seconds": round(recorder.seconds, 3),
            "virtual_seconds": recorder.time,
            "model_sha256": run_folder.models_sha256(recorder.models),
        }
        if "attack_success" in recorder.last:
            summary["attack_success"] = recorder.last["attack_success"]
        if recipe.record.models:
            run_folder.save_models(folder / run_folder.MODELS, recorder.models, self.compute.layout)
        run_folder.write_json(folder / run_folder.SUMMARY, summary)
        (folder / run_folder.CHECKPOINT).unlink(missing_ok=True)
        return summary


def resume(
    folder: Path,
    own: Own | None = None,
    device: str = "auto",
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Take up an interrupted run where its last checkpoint left it."""
    past = read_run(folder)
    if past.summary is not None:
        raise UserError(f"{folder} is a finished run: there is nothing to resume")
    if not (folder / run_folder.CHECKPOINT).exists():
        raise UserError(f"{folder} was stopped before its first checkpoint: run it anew")
    experiment = Experiment(parse(past.recipe, f"{folder}/{run_folder.RECIPE}"), own, device)
    for what in ("layout", "initial_sha256"):
        if experiment.facts()[what] != past.facts.get(what):
            raise UserError(f"{folder} was run with another model: resume it with the same one")
    return experiment.run(folder, progress, stop, resume=True)


def choose_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or not (index.isdecimal() or name == kind):
        raise UserError(f"--device {name}: it must be auto, cpu, cuda or cuda:0, cuda:1, …")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        have = torch.cuda.device_count()
        raise UserError(f"--device {name}: PyTorch finds {have} GPUs on this machine; use cpu")
    return torch.device(name)


def choose_byzantine(recipe: Recipe, ring: Ring) -> frozenset[int]:
    """Who lies: b nodes at random, or b in a row on the ring (the worst case, §III-A).

    Without an attack nobody does.
    """
    if recipe.attack.name == NO_ATTACK:
        return frozenset()
    stream = rng.stream(recipe.seed, "byzantine")
    N, b = recipe.ring.nodes, recipe.ring.byzantine
    if recipe.ring.placement == "row":
        return frozenset(ring.ahead(int(stream.integers(N)), b))
    return frozenset(int(i) for i in stream.permutation(N)[:b])


def _connectivity(recipe: Recipe) -> int:
    return 1 if recipe.scheme.name == "r-plain" else recipe.connectivity


def _options_of(recipe: Recipe, table: Any, key: str) -> dict[str, Any]:
    """The options in the recipe that belong to one entry of one table."""
    section = next(
        part for part in (recipe.data, recipe.scheme, recipe.learning) if hasattr(part, key)
    )
    known = table.options(getattr(section, key))
    return {name: value for name, value in section.options.items() if name in known}
