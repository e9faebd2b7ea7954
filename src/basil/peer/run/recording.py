"""What a peer leaves on its disk: a run folder like the simulator's, its checkpoint, its status."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from basil.errors import UserError
from basil.experiment import Hooks, Setup
from basil.experiment.output import conclude, facts_of, recorder_of, room_for
from basil.peer.link.say import say
from basil.peer.run.engine import Engine
from basil.peer.run.status import Status
from basil.protocol.requests import Record
from basil.recipe import to_toml
from basil.record import checkpoint, run_folder
from basil.record.disk import check_room, sync
from basil.record.read import read_run

RUN = "run"  # the run folder inside a node's folder


class PeerRecorder:
    """Writes down one node's run; the engine's observer."""

    def __init__(
        self,
        folder: Path,
        setup: Setup,
        engine: Engine,
        status: Status,
        look: Callable[[Status], None],
    ) -> None:
        """`look` fills in what the status says of others."""
        self.folder, self.run = folder, folder / RUN
        self.setup, self.engine, self.status = setup, engine, status
        self._look = look
        self.first = 1  # the first round in which this node takes part (again)
        self.recorder = recorder_of(setup, self.run, Hooks(), lambda k: int(k >= self.first))

    def open(self, facts: dict[str, Any]) -> dict[str, Any] | None:
        """Begin a run folder, or take one up: then its checkpoint, if there is one."""
        node = self.setup.participants.members[0]
        # Of each sender a model in the checkpoint, and one that waits for the next.
        models = 2 * len(self.setup.participants.weights(node)) + 4
        check_room(self.run, room_for(self.setup, models))
        if not (self.run / run_folder.FACTS).exists():
            recipe = to_toml(self.setup.recipe)
            run_folder.create(self.run, recipe, {**facts_of(self.setup), **facts}, durable=True)
        else:
            self._same_run(facts)
        saved = self._checkpoint()
        if saved is not None:
            sync(self.run)  # a kill may have come before its name was: a power cut would undo it
            self.recorder.restore(saved["recorder"])
        self.recorder.__enter__()
        return saved and saved["engine"]

    def _checkpoint(self) -> dict[str, Any] | None:
        path = self.run / run_folder.CHECKPOINT
        return checkpoint.load(path, self.setup.device) if path.exists() else None

    def state(self) -> dict[str, Any] | None:
        """The protocol's, of the last checkpoint."""
        saved = self._checkpoint()
        return saved and saved["engine"]["state"]

    def _same_run(self, facts: dict[str, Any]) -> None:
        before = read_run(self.run).facts
        grown = len(before["order"]) != self.setup.recipe.ring.nodes  # a member was added meanwhile
        if grown or any(before.get(what) != facts[what] for what in ("ring", "attack")):
            raise UserError(
                f"{self.run} holds another run of this node: move it away, or start the node as it"
                " was started then"
            )

    # -- as the engine's observer -------------------------------------------------------------

    def record(self, record: Record, now: float) -> None:
        self.recorder.record(self.setup.participants.members[0], record, now)
        self.status.selected = record.chosen
        if record.last:
            self.status.round = record.round

    def save(self) -> None:
        self.recorder.save(self.engine)

    def turned(self) -> None:
        self.recorder.end_rounds(self.engine)
        self.status.turn = self.engine.busy
        self.write_status()
        s = self.status
        say("turn", round=s.round, selected=s.selected, accuracy=s.accuracy, missing=s.missing)

    def write_status(self) -> None:
        self.status.accuracy = self.recorder.last.get("accuracy", {}).get("worst")
        self._look(self.status)
        self.status.write(self.folder)

    # -- the end ------------------------------------------------------------------------------

    def finish(self, more: dict[str, Any]) -> dict[str, Any]:
        self.recorder.finish(self.engine)
        return conclude(self.setup, self.recorder, self.engine.done, more)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a full disk was complained about before
            self.recorder.__exit__()
