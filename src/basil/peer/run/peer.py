"""One peer, from its folder to its last round: serve, agree, share, train, stay a while, end.

ring/node-3/          keys, certificate and roster; and, once it runs:
ring/node-3/run/      its run folder, like the simulator's, with the checkpoint
ring/node-3/state/    what it has taken from others and not worked on, how far each sender has come
ring/node-3/status.json
"""

import hashlib
import json
import os
import tomllib
from collections.abc import Collection
from contextlib import ExitStack, suppress
from typing import Any

from torch import Tensor

from basil.engine.process import Work
from basil.errors import UserError
from basil.experiment import Custom, Machine, Setup, set_up
from basil.experiment.nodes import protocol_of
from basil.foreign import look_in
from basil.host import host
from basil.peer.limits import Limits
from basil.peer.link.journal import check_marks
from basil.peer.link.reception import Message
from basil.peer.link.say import say
from basil.peer.link.transport import Transport
from basil.peer.members.identity import load_identity
from basil.peer.members.roster import ROSTER, load_roster, recipe_of_run, save_roster
from basil.peer.messages.bodies import ABSENT, BASKET, MODEL, REJOIN, forms_of
from basil.peer.run import agreement as phases
from basil.peer.run import metrics
from basil.peer.run.agreement import (
    HELLO,
    Agreement,
    Alone,
    Handshake,
    Hello,
    where_to_rejoin,
)
from basil.peer.run.data_sharing import Sharing
from basil.peer.run.engine import LAGS, Behind, Engine
from basil.peer.run.inbox import BLOCK, Inbox, Stopped
from basil.peer.run.liveness import Clock, Patience
from basil.peer.run.lockstep import in_ring_order
from basil.peer.run.recording import RUN, PeerRecorder
from basil.peer.run.rounds import Rounds
from basil.peer.run.start import Options, local_node_of, quorum_of, seconds_of_a_turn
from basil.peer.run.status import Status
from basil.protocol.requests import Send
from basil.recipe import NO_ATTACK, code_of, parse, to_toml, with_own_data
from basil.record.run_folder import CHECKPOINT, SUMMARY

SHARE, TRAIN = "share", "train"  # the stages of a run, as manifests name them
STATE, ARRIVALS, MARKS = "state", "arrivals", "marks.jsonl"
RECENT = 2.0  # seconds for which nobody is asked again whether it is here
WAITING = "waiting"  # for a quorum, as the status says
TOGETHER = 5.0  # seconds in which all start to train after the sharing


class Peer:
    """One node of a ring, on this machine."""

    def __init__(self, options: Options) -> None:
        self.options, folder = options, options.folder
        look_in(folder)  # others' code that the recipe names may lie beside the roster
        self.identity, roster = load_identity(folder), load_roster(folder)
        roster.check(self.identity)
        self._roster = roster  # as it was when this node was started
        self.node, self.state = self.identity.node, folder / STATE
        text = recipe_of_run(roster, self.state, self.identity.authority)
        self.recipe = parse(tomllib.loads(text), f"{folder}/roster.toml, recipe")
        if self.node >= self.recipe.ring.nodes:
            raise UserError(f"node {self.node} has no place in a ring of {self.recipe.ring.nodes}")
        self.byzantine = self.recipe.ring.byzantine
        self.local = local_node_of(self.recipe, self.node, options)
        self.participants = self.local.participants
        self._expects = sorted(self.participants.weights(self.node))
        self.setup = self._set_up()
        self.rounds = Rounds(self.participants, self.setup.numbering, self.node)
        try:
            (self.state / ARRIVALS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder} cannot be written: {error.strerror}") from error
        shares = self.participants.shares
        self.sharing = Sharing(self.recipe, self.local, self.state) if shares else None
        self.status = Status(self.node, os.getpid(), rounds=self.recipe.scheme.rounds)
        self.status.attack = options.attack
        self._stop = host.event()
        self._digests: dict[tuple[str, str], str] = {}  # by what may change meanwhile
        self._phase = phases.JOINING
        self._turn = 0.0
        self._shared = Work()  # what the sharing has cost,
        self._facts: dict[str, Any] = {}  # and what came of it
        self.clock = Clock()
        limits = Limits(transfers=len(self._expects) + 1)
        layout = self.setup.compute.layout
        most = limits.arrivals * (forms_of(layout).model_size + BLOCK)
        self.inbox = Inbox(self.clock, self.state / ARRIVALS, most)
        check_marks(self.state / MARKS, roster)
        self.sharing_clock = Clock()
        self.baskets = Inbox(self.sharing_clock)
        self.transport = Transport(
            self.identity,
            roster,
            layout,
            limits,
            self._deliver,
            self.state / MARKS,
            rows=self.sharing.rows if self.sharing else None,
            listen=options.listen,
            equivocates=options.attack != NO_ATTACK,
        )
        self._senders = self.participants.senders(self.node)
        self.transport.expected, self.transport.early = self._expected, self._early
        others = self.participants.ring.position.keys() & set(roster.ids)
        self.handshake = Handshake(self.node, others, self.byzantine, self._hello)
        self.transport.answers[HELLO] = self.handshake.answer
        self.quorum = quorum_of(options, roster, self.participants, self._waits)
        self.engine: Engine | None = None

    def _set_up(self) -> Setup:
        machine, custom = Machine(self.options.device), Custom(dataset=self.local.data)
        recipe = self.recipe
        if self.options.data is not None:
            recipe = with_own_data(recipe, self.local.data)
        return set_up(recipe, custom, machine, held=self.local.node_data)

    def stop(self) -> None:
        """Ask it to end; its checkpoint is there anyway."""
        self._stop.set()
        self.inbox.stop()
        self.baskets.stop()

    # -- what others see ----------------------------------------------------------------------

    def _deliver(self, message: Message) -> None:
        if message.sender in self.transport.evidence.excluded:
            return  # proven to lie: as if it had said nothing
        box = self.inbox if message.stage == TRAIN else self.baskets
        box.put(message.sender, message.round, message.body, message)

    def _expected(self, sender: int, stage: str, kind: str) -> bool:
        """Models come from those alone whose models this node takes in; notes from all of a ring.

        Not from members that were added since the run began.
        """
        if sender not in self.participants.ring.position:
            return False
        if stage == TRAIN:
            return kind == REJOIN or (kind == MODEL and sender in self._senders)
        return stage == SHARE and self.sharing is not None and kind in (BASKET, ABSENT)

    def _early(self, sender: int, stage: str, number: int) -> bool:
        """Of a round so far ahead that this node, if it is not a lie, has been left behind."""
        if stage != TRAIN or self._phase != phases.TRAINING or self.engine is None:
            return False
        if self.rounds.of(number) <= self.engine.round + LAGS:
            return False
        self.inbox.note(sender, number)
        return True

    def _hello(self) -> Hello:
        return Hello(self._digest(), self._phase, self.status.round, self._turn)

    def _digest(self) -> str:
        """What all must have in common: roster with recipe, others' code in it, order, network,
        dummies.
        """
        variable = self.transport.roster.digest, self.sharing.digest if self.sharing else ""
        if variable not in self._digests:
            data = self.local.data
            common = [
                variable[0],
                to_toml(self.recipe),
                code_of(self.recipe),
                list(self.participants.ring.order),
                self.setup.compute.layout.fingerprint,
                [data.classes, data.mean, data.std],
                variable[1],
            ]
            self._digests[variable] = hashlib.sha256(json.dumps(common).encode()).hexdigest()
        return self._digests[variable]

    def _look(self, status: Status) -> None:
        """What this node thinks of the others."""
        k, heard = status.round, self.inbox.heard
        status.phase = self._phase
        status.heard = {j: self.rounds.of(heard.get(j, 0)) for j in self._expects}
        status.missing = [j for j, last in status.heard.items() if last < k - 1]
        status.excluded = sorted(self.transport.evidence.excluded)
        status.refused, status.failures = self.transport.counters.totals()
        if self.engine is not None and self.engine.patience is not None:
            status.patience = self.engine.patience.seconds

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self._look(self.status)
        self.status.write(self.options.folder)
        say(phase, round=self.status.round)

    # -- the run --------------------------------------------------------------------------------

    def run(self) -> dict[str, Any] | None:
        """Returns the summary; None if it was stopped.  Start it again and it goes on."""
        folder = self.options.folder
        if (folder / RUN / SUMMARY).exists():
            raise UserError(f"{folder / RUN} is a finished run: move it away to run once more")
        with ExitStack() as at_the_end:
            if self.options.metrics:
                figures = metrics.Figures(lambda: self.status, self.transport.counters.snapshot)
                at_the_end.callback(metrics.serve(self.options.metrics, figures))
            at_the_end.callback(self.transport.stop)
            try:
                self._turn = seconds_of_a_turn(self.setup, self.state)
                ready = self.sharing is None or self.sharing.over
                prepared = self._prepare() if ready else None  # before others wait for it
                self.transport.start()
                return self._run(prepared)
            except Stopped:
                self._enter("stopped")
                return None
            except Alone:
                self._enter("alone")
                raise
            except OSError as error:  # a full disk: better silent than contradictory
                raise UserError(
                    f"{folder} cannot be written: {error.strerror or error}; without a checkpoint"
                    " nothing is sent. Make room and start the node again"
                ) from error

    def _run(self, prepared: PeerRecorder | None) -> dict[str, Any]:
        self._enter(phases.JOINING)
        if prepared is None or prepared.engine.round <= self.recipe.scheme.rounds:
            self._gather()
        agreed = self.handshake.agree(self.transport, self.options.window, self._stop.is_set)
        if self._stop.is_set():
            raise Stopped
        if not (self.state / ROSTER).exists():  # from now on a larger roster changes nothing
            save_roster(self.state, self._roster)
        say("agreed", missing=sorted(agreed.missing), differing=sorted(agreed.differing))
        recorder = prepared or self._share_first(agreed)
        try:
            self._train(recorder, agreed)
            self._check_company(recorder.engine)
            self._enter(phases.DONE)
            summary = recorder.finish({} if self.sharing is None else {"sharing": self._facts})
            recorder.write_status()
        finally:
            recorder.close()
        say("finished", accuracy=summary["accuracy"]["worst"], rounds=summary["rounds"])
        self._linger()
        with suppress(OSError):  # it has finished, whatever becomes of it
            (recorder.run / CHECKPOINT).unlink()
        return summary

    def _check_company(self, engine: Engine) -> None:
        """A node that has no part in what the ring has learnt has not finished."""
        if engine.round == 1:
            raise Alone(
                f"node {self.node} has taken no turn: others say that all"
                f" {self.recipe.scheme.rounds} rounds are over. If they are not, start it again"
            )
        if engine.heard_nobody and self.quorum.needed > 1:
            raise Alone(
                f"node {self.node} has heard nobody in all rounds, so what it trained is its own:"
                f" see that others reach it at {self._roster.check(self.identity).address}, and"
                " begin a new run; --quorum 1 finishes this one as it is"
            )

    def _linger(self) -> None:
        """Others may still need what this node has sent, or its answers."""
        self._wait_for(self.handshake.others, self.options.linger, phases.DONE)

    def _gather(self, since: float = 0.0) -> None:
        """Not without a quorum."""
        self.handshake.gather(self.transport, self.quorum, since, self._stop.is_set)
        if self.status.phase == WAITING:
            self._enter(self._phase)

    def _waits(self, missing: list[int]) -> None:
        self.status.phase, self.status.missing = WAITING, missing
        self.status.write(self.options.folder)
        say(WAITING, missing=missing, quorum=self.quorum.needed)

    def _missed(self) -> bool:
        """Somebody was not heard from in time: nobody goes on who is nearly alone."""
        assert self.engine is not None
        assert self.engine.patience is not None
        since = host.monotonic() - max(RECENT, 2 * self.engine.patience.seconds)
        if not self.handshake.awaited(self.quorum, since):
            return False
        with self.engine.patience.paused():
            self._gather(since)
        return True

    def _share_first(self, agreed: Agreement) -> PeerRecorder:
        """Before the training, which all then begin at about the same time."""
        assert self.sharing is not None
        self.sharing.begin()
        if not agreed.turning(self.byzantine):  # otherwise this node came too late for it
            self._share(self.sharing)
        recorder = self._prepare()
        self._phase = phases.TRAINING
        self._wait_for(agreed.hellos, TOGETHER, phases.TRAINING, phases.DONE)
        return recorder

    def _wait_for(self, who: Collection[int], window: float, *there: str) -> None:
        self.handshake.wait_for(self.transport, who, there, window, self._stop.is_set)

    def _share(self, sharing: Sharing) -> None:
        self._enter(phases.SHARING)
        self.sharing_clock.set_pace(1.0)
        engine = Engine(self.baskets, lambda send: self._post(SHARE, send), self.setup.compute)
        engine.stopped = self._stop.is_set
        outcome = engine.run(sharing.protocol(self.sharing_clock.now(), self.options.twin))
        sharing.finish(outcome)
        self._shared = engine.done
        say("shared", received=len(outcome.received), incidents=len(outcome.incidents))

    def _prepare(self) -> PeerRecorder:
        """The engine and the run folder, as the last checkpoint left them."""
        if self.sharing is not None:
            self._facts = self.sharing.take_in()
            self.setup = self._set_up()  # with the samples that were received
        engine = Engine(
            self.inbox,
            lambda send: self._post(TRAIN, send),
            self.setup.compute,
            was_due=self.rounds.was_due,
            round_of=self.rounds.of,
            benign=self._watched(),
            byzantine=self.byzantine,
        )
        engine.stopped = self._stop.is_set
        engine.done.add(self._shared)
        recorder = PeerRecorder(self.options.folder, self.setup, engine, self.status, self._look)
        ring = self.transport.roster.run
        saved = recorder.open({"ring": ring, "node": self.node, "attack": self.options.attack})
        if saved is not None:
            engine.restore(saved)
            self.clock.restart(engine.since)
        self.inbox.restore(engine.mark)
        engine.observer = recorder
        self.engine = engine
        self.status.round = engine.round - 1
        return recorder

    def _watched(self) -> dict[int, Tensor]:
        """Whose last models an omniscient attack is shown: here, those that this node receives."""
        armed = self.participants.attack
        if armed is None or not armed.attack.omniscient:
            return {}
        return dict.fromkeys(self.participants.benign, self.setup.compute.initial)

    def _train(self, recorder: PeerRecorder, agreed: Agreement) -> None:
        engine, recipe = recorder.engine, self.recipe
        if self.participants.graph is None and self.options.twin:
            ring, reach = self.participants.ring_of(self.node), len(self._expects)
            numbering = self.setup.numbering
            self.inbox.hold = in_ring_order(ring, self.node, reach, self.inbox.given, numbering)
        engine.patience = Patience(
            self.clock,
            self.setup.patience,
            agreed.turn(self._turn, self.byzantine),
            recipe.time.patience,
            self.options.patience,
            self.byzantine,
        )
        engine.missed = self._missed
        rejoins = where_to_rejoin(engine.round, agreed.round(self.byzantine))
        self._enter(phases.TRAINING)
        engine.post_again()
        state, engine.state = engine.state, None
        while rejoins is None or rejoins <= recipe.scheme.rounds:
            recorder.first = engine.round if rejoins is None else rejoins
            protocol = protocol_of(self.setup, self.node, self.clock.now(), state, rejoins)
            del state  # the protocol has taken what it needs
            try:
                engine.run(protocol)
                break
            except Behind as behind:
                rejoins, state = behind.round + 1, recorder.state()
                say("left behind", round=engine.round, rejoins=rejoins)

    def _post(self, stage: str, send: Send) -> None:
        if send.to and not self.transport.send(send.to, stage, send.round, send.body):
            say("not sent", round=send.round, reason="this round was signed with other content")
