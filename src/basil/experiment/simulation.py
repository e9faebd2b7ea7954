"""Run a setup: all nodes in a simulator, into a run folder."""

from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from basil.engine.full_pace import full_pace
from basil.engine.process import Absence
from basil.engine.simulate import Observer, Simulator
from basil.experiment.nodes import protocol_of
from basil.experiment.output import conclude, facts_of, recorder_of, room_for
from basil.experiment.setup import Setup
from basil.protocol.drive import Driver
from basil.recipe import to_toml, to_tree
from basil.record import checkpoint, run_folder
from basil.record.disk import check_room
from basil.record.recorder import Hooks

NO_HOOKS = Hooks()


class Interrupted(Exception):
    """The run was asked to stop, and left a checkpoint."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """Runs a setup, from the start or from a checkpoint."""

    setup: Setup

    def simulator(self, observer: Observer) -> Simulator:
        """All nodes, ready to run: after the sharing, where there is one."""
        setup, participants = self.setup, self.setup.participants
        simulator = Simulator(
            {node: node in participants.byzantine for node in participants.members},
            partial(protocol_of, setup),
            setup.compute,
            setup.timing,
            observer,
            tuple(Absence(e.node, e.leaves, e.returns, e.stage) for e in participants.events),
        )
        if setup.shared is not None:
            simulator.now = setup.shared.seconds
            simulator.done.add(setup.shared.work)
        return simulator

    def run(self, folder: Path, hooks: Hooks = NO_HOOKS, resume: bool = False) -> dict[str, Any]:
        """Simulate, into a new run folder or on from a checkpoint.  Returns the summary."""
        with run_folder.held(folder):
            return self.run_held(folder, hooks, resume)

    def run_held(self, folder: Path, hooks: Hooks, resume: bool) -> dict[str, Any]:
        """The same, for a caller that holds the folder."""
        instants = Driver(self.instants(folder, hooks, resume))
        with full_pace():
            for _ in instants:
                pass
        return instants.result

    def instants(
        self, folder: Path, hooks: Hooks = NO_HOOKS, resume: bool = False
    ) -> Generator[bool, None, dict[str, Any]]:
        """The same, instant by instant: so that several runs can share a device."""
        with run_folder.kept(folder):
            summary = yield from self._to_the_end(folder, hooks, resume)
        for callback in hooks.callbacks:
            callback.end(summary)
        return summary

    def _to_the_end(
        self, folder: Path, hooks: Hooks, resume: bool
    ) -> Generator[bool, None, dict[str, Any]]:
        setup = self.setup
        check_room(folder, room_for(setup))
        recorder = recorder_of(setup, folder, hooks)
        simulator = self.simulator(recorder)
        if resume:
            newest, before = (
                folder / name for name in (run_folder.CHECKPOINT, run_folder.CHECKPOINT_BEFORE)
            )
            saved = checkpoint.load_either(newest, before, setup.device)
            recorder.restore(saved["recorder"])
            simulator.restore(saved["engine"])
        else:
            run_folder.create(folder, to_toml(setup.recipe), facts_of(setup))
            if setup.shared is not None:
                setup.shared.write(folder)
        for callback in hooks.callbacks:
            callback.begin(folder, to_tree(setup.recipe), recorder.round)
        with recorder:
            for going_on in simulator.instants():
                if not going_on:
                    raise Interrupted(str(folder))
                yield True
            recorder.finish(simulator)
        shared = {} if setup.shared is None else {"sharing": setup.shared.facts()}
        summary = conclude(setup, recorder, simulator.done, shared)
        with suppress(OSError):  # the run is finished, whatever becomes of it
            run_folder.drop_leftovers(folder)
        return summary
