"""One night: a ring of real peer code in a simulated world, and what happens to it."""

import gc
import random
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from basil.errors import UserError
from basil.peer.link import rpc
from basil.peer.members import authority
from basil.peer.messages.manifest import Manifest
from basil.peer.run import agreement, peer, start
from basil.peer.run.agreement import Alone
from basil.peer.run.merge import merge
from basil.recipe import load, to_toml
from chaos.disks import Disks
from chaos.faults import Faults, Plan, some_weather
from chaos.insiders import Insider
from chaos.machine import simulated
from chaos.seals import the_same_keys
from chaos.threads import World
from chaos.watch import Watch, manifest_of
from chaos.wires import Call, Network, Weather

NODES, BYZANTINE, ROUNDS = 8, 2, 10
LONGEST = 240.0  # by when a ring that makes progress again has ended; simulated seconds
LOOK = 0.5  # between two looks at what must hold
ATTACKS = ("gaussian", "sign-flip", "inverse", "drift")


@dataclass
class Outcome:
    """What a night came to."""

    seed: int
    without: frozenset[str] = frozenset()
    violations: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)  # what was to happen, by name
    faults: int = 0
    messages: int = 0
    seconds: float = 0.0  # simulated
    rounds: dict[int, int] = field(default_factory=dict)
    model: str = ""  # of all honest nodes together, where all have ended

    @property
    def replay(self) -> str:
        without = f' WITHOUT="{",".join(sorted(self.without))}"' if self.without else ""
        return f"make chaos SEED={self.seed}{without}"


def recipe() -> str:
    changes = {
        "ring.nodes": NODES,
        "ring.byzantine": BYZANTINE,
        "ring.connectivity": BYZANTINE + 1,
        "scheme.rounds": ROUNDS,
        "scheme.name": "basil",
        "learning.model": "softmax",
        "learning.batch": 8,
        "record.every": ROUNDS,
        "record.test_samples": 50,
        "attack.name": "none",
    }
    return to_toml(load("demo", changes))


@cache
def rings() -> Path:
    """Keys and certificates, made once; each night has a copy."""
    folder = Path(tempfile.mkdtemp(prefix="basil-chaos-")) / "ring"
    with the_same_keys():
        authority.init(folder, recipe(), [f"127.0.0.1:{2000 + i}" for i in range(NODES)])
    return folder


@contextmanager
def _litter() -> Iterator[None]:
    """What is killed closes no files; it is cleared away at the end, and nobody complains.

    What was there before the night is not looked at.
    """
    gc.disable()
    gc.freeze()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            yield
        finally:
            gc.collect()
            gc.unfreeze()
            gc.enable()


class Night:
    """`quiet`: no faults at all, and the simulator's own order.  `without`: not these events."""

    def __init__(
        self, seed: int, folder: Path, quiet: bool, tell: bool, without: frozenset[str]
    ) -> None:
        self.seed, self.folder, self.quiet, self.tell = seed, folder, quiet, tell
        self.world, self.plan = World(seed), Plan(without)
        self.outcome = Outcome(seed, without, events=self.plan.names)
        self.watch = Watch(self._violated)
        self.draw = draw = random.Random(f"night {seed}")
        self.network = Network(self.world, Weather() if quiet else some_weather(draw, self.plan))
        self.network.says, self.network.took = self._says, self.watch.took
        self.known: list[Manifest] = []  # what honest nodes have signed
        # Byzantine nodes, and those whose disks fail them, are b together.
        faulty = [] if quiet else draw.sample(range(NODES), draw.randint(0, BYZANTINE))
        self.attacks: dict[int, str] = {}
        self.insiders: dict[int, Insider] = {}
        self.broken: set[int] = set()
        for node in faulty:
            attack, insider = draw.choice(ATTACKS), Insider(draw, self.known)
            if draw.random() < 0.4:
                self.broken.add(node)
            elif self.plan.has(f"insider {node}"):
                self.attacks[node], self.insiders[node] = attack, insider
        self.honest = set(range(NODES)) - self.insiders.keys()
        self.sound = self.honest - self.broken
        self.peers: dict[int, peer.Peer] = {}
        self.ended: dict[int, str] = {}
        self._over = False

    def run(self) -> Outcome:
        shutil.copytree(rings(), self.folder, dirs_exist_ok=True)
        world, draw, disks = self.world, self.draw, Disks(self.world, self.folder)
        faults = Faults(
            world, self.network, disks, self.watch, self.folder, self._start, self._done, self._say
        )
        heard = self._say if self.tell else None
        with simulated(world, disks, self.network, heard, self.quiet):
            for node in range(NODES):
                self._start(node, 0.0 if self.quiet else draw.choice([1, 1, 5]) * draw.random())
            if not self.quiet:
                faults.plan(draw, self.plan, NODES, self.broken)
            self._look()
            world.run(LONGEST, lambda: self._over)
            self._judge()
            self.peers.clear()
            world.close()
        return self.outcome

    def _start(self, node: int, delay: float) -> None:
        self.world.spawn(partial(self._live, node), node, delay)

    def _live(self, node: int) -> None:
        self.ended.pop(node, None)
        options = start.Options(
            self.folder / f"node-{node}",
            attack=self.attacks.get(node, "none"),
            device="cpu",
            twin=self.quiet,
            window=5.0,
            linger=60.0,
        )
        try:
            here = peer.Peer(options)
            self.peers[node] = here
            if node in self.honest:
                self.watch.begins(here)
            else:
                lies = self.insiders[node].hello(here.handshake.about_me)
                here.handshake.about_me = lies
            here.run()
            self.ended[node] = "done"
        except (UserError, Alone) as error:
            self.ended[node] = str(error)
            self._say("ends", {"reason": error})
            if node in self.honest:
                # What ends with a sentence is started again, as by its service manager.
                self._start(node, 5.0)

    def _says(self, call: Call) -> None:
        node = call.identity.node
        if node in self.insiders:
            self.insiders[node].says(call)
        elif call.method == rpc.DELIVER and (manifest := manifest_of(call)) is not None:
            self.known.append(manifest)
            if node not in self.watch.turned_back:
                self.watch.leaves(manifest)

    # -- what must hold ------------------------------------------------------------------------

    def _look(self) -> None:
        self._over = all(self._done(node) or self._left_alone(node) for node in self.sound)
        for node in self.honest & self.peers.keys():
            self.watch.look(self.peers[node], self.honest)
            if self._done(node) and not self._somebody_has_ended():
                self._violated(f"node {node} ended before anybody had taken all turns")
        self.world.at(self.world.now + LOOK, self._look)

    def _somebody_has_ended(self) -> bool:
        here = (self.peers[node] for node in self.honest & self.peers.keys())
        return any(each.status.round >= ROUNDS for each in here)

    def _left_alone(self, node: int) -> bool:
        """It comes back when the ring is over: nobody is there any more whom it could ask."""
        others = [other for other in self.sound if other != node]
        gone = sum(self.ended.get(other) == "done" for other in others)
        return len(others) - gone < NODES // 2

    def _done(self, node: int) -> bool:
        return node in self.peers and self.peers[node].status.phase == agreement.DONE

    def _judge(self) -> None:
        for node in sorted(self.sound):
            here = self.peers.get(node)
            if here is not None and self._done(node):
                self.outcome.rounds[node] = here.status.round
            elif not self._left_alone(node):
                why = self.ended.get(node, f"round {here.status.round if here else 0}")
                self._violated(f"node {node} did not end: {why}")
        for whose, error in self.world.errors:
            self._violated(f"node {whose}: {type(error).__name__}: {error}")
        if len(self.outcome.rounds) == NODES:
            merged = merge(self.folder, self.folder / "merged").summary
            self.outcome.model = merged["model_sha256"] if merged else ""
        self.outcome.faults = self.network.faults
        self.outcome.messages = self.network.sent
        self.outcome.seconds = self.world.now

    def _violated(self, what: str) -> None:
        if what not in self.outcome.violations:
            self.outcome.violations.append(what)
            self._say("VIOLATED", {"what": what})

    def _say(self, event: str, facts: dict[str, Any] | None = None) -> None:
        if self.tell:
            more = " ".join(f"{key}={value}" for key, value in (facts or {}).items())
            print(f"{self.world.now:9.3f}  node {self.world.node}  {event}  {more}")


def night(
    seed: int, quiet: bool = False, tell: bool = False, without: frozenset[str] = frozenset()
) -> Outcome:
    """`tell`: print what the nodes log, and what happens to them."""
    torch.set_num_threads(1)
    root = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="basil-night-", dir=root) as folder, _litter():
        return Night(seed, Path(folder), quiet, tell, without).run()
