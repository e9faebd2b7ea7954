"""The one place where a recipe meets code: assemble the nodes, run them, record the outcome."""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from basil.engine.collector import unhurried_collector
from basil.engine.process import Absence, Work
from basil.engine.simulate import Observer, Simulator
from basil.experiment.nodes import Nodes
from basil.experiment.summary import summarise
from basil.foreign import whereabouts
from basil.protocol.drive import Driver
from basil.recipe import code_of, to_toml, to_tree
from basil.recipe.schema import away_in
from basil.record import checkpoint, run_folder
from basil.record.callback import Callback
from basil.record.evaluate import Evaluation
from basil.record.provenance import surroundings
from basil.record.recorder import Hooks, Progress, Recorder, Reports


class Interrupted(Exception):
    """The run was asked to stop, and left a checkpoint."""


class Experiment(Nodes):
    """A recipe that can be run: all nodes in a simulator, and who writes down what they do."""

    def facts(self) -> dict[str, Any]:
        return {
            **surroundings(self.device),
            "parameters": self.compute.layout.size,
            "layout": self.compute.layout.fingerprint,
            "initial_sha256": run_folder.models_sha256({0: self.compute.initial}),
            "classes": self.data.classes,
            **self.cast.facts(),
            **self._extensions(),
        }

    def _extensions(self) -> dict[str, Any]:
        """What the recipe names that Basil does not ship, and where it may lie."""
        code = code_of(self.recipe)
        return {"extensions": code, "folders": whereabouts().folders} if code else {}

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
        course = Driver(self.course(folder, progress, stop, resume, callbacks))
        with run_folder.held(folder), unhurried_collector():
            for _ in course:
                pass
        return course.result

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
        reports = Reports(
            nodes=[node for node in cast.ring.order if node in cast.members],
            byzantine=cast.byzantine,
            ring_of=cast.ring_of,
            rounds=recipe.scheme.rounds,
            expected=expected or (lambda k: len(cast.members) - away_in(k, cast.events)),
        )
        evaluation = Evaluation(
            self.compute,
            self.test,
            samples=min(len(self.test), recipe.record.test_samples or len(self.test)),
            every=recipe.record.every,
            triggered=self.triggered,
        )
        hooks = Hooks(progress, stop, callbacks)
        return Recorder(folder, reports, evaluation, hooks, recipe.record.checkpoint)
