"""One night: a ring of real peer code in a simulated world, what happens, and what must hold."""

import gc
import random
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from basil.errors import UserError
from basil.peer.link import (
    connections,
    counters,
    gossip,
    guard,
    journal,
    outbox,
    reception,
    rpc,
    transport,
)
from basil.peer.members import authority
from basil.peer.members.identity import Identity
from basil.peer.messages import evidence
from basil.peer.messages.bodies import REJOIN
from basil.peer.messages.manifest import decode
from basil.peer.run import agreement, engine, inbox, liveness, peer, recording, start, status
from basil.peer.run.agreement import Alone
from basil.peer.run.merge import merge
from basil.recipe import load, to_toml
from basil.record import disk
from chaos.disks import Disks
from chaos.insiders import Insider
from chaos.threads import Condition, Event, Lock, Semaphore, Thread, World
from chaos.wires import Network, Weather

NODES, BYZANTINE, ROUNDS = 8, 2, 10
TURN = 0.05  # seconds that a turn is said to take
LONGEST = 600.0  # simulated seconds of a night
LOOK = 0.5  # between two looks at whether all have ended
CALM = 60.0  # from when on nothing goes wrong any more: a ring that holds ends well before the end
ATTACKS = ("none", "gaussian", "sign-flip", "inverse", "drift")


@dataclass
class Outcome:
    """What a night came to."""

    seed: int
    violations: list[str] = field(default_factory=list)
    faults: int = 0
    messages: int = 0
    kills: int = 0
    seconds: float = 0.0  # simulated
    rounds: dict[int, int] = field(default_factory=dict)
    model: str = ""  # of all honest nodes together, where all have ended

    @property
    def replay(self) -> str:
        return f"make chaos SEED={self.seed}"


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
    authority.init(folder, recipe(), [f"127.0.0.1:{2000 + i}" for i in range(NODES)])
    return folder


class Night:
    """`quiet`: no faults at all, and the simulator's own order."""

    def __init__(self, seed: int, folder: Path, quiet: bool = False, tell: bool = False) -> None:
        self.seed, self.folder, self.quiet, self.tell = seed, folder, quiet, tell
        self.world = World(seed)
        draw = random.Random(f"night {seed}")
        self.draw = draw
        self.weather = Weather() if quiet else some_weather(draw)
        self.network = Network(self.world, self.weather)
        self.network.says = self._says
        self.outcome = Outcome(seed)
        count = 0 if quiet else draw.randint(0, BYZANTINE)
        self.attacks = dict.fromkeys(range(NODES), "none")
        self.attacks |= {i: draw.choice(ATTACKS[1:]) for i in draw.sample(range(NODES), count)}
        self.insiders = {i: Insider(draw) for i, attack in self.attacks.items() if attack != "none"}
        self.honest = [i for i, attack in self.attacks.items() if attack == "none"]
        self.peers: dict[int, peer.Peer] = {}
        self.ended: dict[int, str] = {}
        self._over = False
        self._signed: dict[tuple[int, str, str, int], str] = {}

    # -- what happens --------------------------------------------------------------------------

    def run(self) -> Outcome:
        shutil.copytree(rings(), self.folder, dirs_exist_ok=True)
        self.disks = Disks(self.world, self.folder)
        with self._here():
            for node in range(NODES):
                self._start(node, self.draw.uniform(0, 5) if not self.quiet else 0.0)
            if not self.quiet:
                self._plan()
            self._look()
            self.world.run(LONGEST, lambda: self._over)
            self._judge()
            with warnings.catch_warnings():  # a node that is killed closes no files
                warnings.simplefilter("ignore")
                self.peers.clear()
                self.world.close()
                gc.collect()
        return self.outcome

    def _start(self, node: int, delay: float = 0.0) -> None:
        self.world.spawn(partial(self._live, node), node, delay)

    def _live(self, node: int) -> None:
        self.ended.pop(node, None)
        options = start.Options(
            self.folder / f"node-{node}",
            attack=self.attacks[node],
            device="cpu",
            twin=self.quiet,
            window=30.0,
            linger=60.0,
        )
        try:
            here = self.peers[node] = peer.Peer(options)
            here.run()
            self.ended[node] = "done"
        except (UserError, Alone) as error:
            self.ended[node] = str(error)
            if node in self.honest:
                # What ends with a sentence is started again, as by its service manager.
                self.world.at(self.world.now + 5.0, partial(self._start, node))

    def _plan(self) -> None:
        world, draw = self.world, self.draw
        for _ in range(draw.randint(0, 6)):
            node, moment = draw.randrange(NODES), draw.uniform(0.1, CALM / 3)
            power = draw.random() < 0.4
            world.at(moment, partial(self._kill, node, draw.uniform(0.05, 10), power))
        for _ in range(draw.choice([0, 0, 1, 2])):
            node, moment = draw.randrange(NODES), draw.uniform(0, CALM / 3)
            world.at(moment, partial(self.disks.full.add, node))
            world.at(moment + draw.uniform(0.1, 10), partial(self.disks.full.discard, node))
        for _ in range(draw.randint(0, 4)):
            moment, length = draw.uniform(0, CALM / 3), draw.uniform(0.1, 15)
            side = set(draw.sample(range(NODES), draw.randint(1, NODES // 2)))
            links = {frozenset((a, b)) for a in side for b in set(range(NODES)) - side}
            world.at(moment, partial(self._part, links))
            world.at(moment + length, partial(self._heal, links))
        world.at(CALM, self._calm)

    def _kill(self, node: int, pause: float, power: bool) -> None:
        if self._done(node):
            return
        self.world.kill(node)
        self._say("power cut" if power else "killed", node=node, back_in=f"{pause:.2f} s")
        if power:
            self.disks.power_cut(self.folder / f"node-{node}")
        self.outcome.kills += 1
        self._start(node, pause)

    def _part(self, links: set[frozenset[int]]) -> None:
        self._say("links break", links=sorted(map(sorted, links)))
        self.network.down |= links
        self.network.faults += 1

    def _heal(self, links: set[frozenset[int]]) -> None:
        self._say("links heal")
        self.network.down -= links

    def _calm(self) -> None:
        self.network.down.clear()
        self.network.weather = Weather()

    def _all_ended(self) -> bool:
        return all(self._done(node) or self._left_alone(node) for node in self.honest)

    def _look(self) -> None:
        self._over = self._all_ended()
        for node, here in self.peers.items():
            self._check_memory(node, here)
        self.world.at(self.world.now + LOOK, self._look)

    def _check_memory(self, node: int, here: peer.Peer) -> None:
        """What others can make a node hold is bounded (docs/operate/security.md)."""
        limits = here.transport.limits
        waiting = Counter(arrival.sender for _, arrival, _ in here.inbox._queue)
        for sender, count in waiting.items():
            if count > 2 * limits.waiting + 2:  # models and notes, and what a restart brought
                self._violated(f"node {node} holds {count} messages of node {sender}")
        for receiver, box in here.transport._outboxes.items():
            if len(box._queue) > 3 * limits.outbox:
                self._violated(f"node {node} keeps {len(box._queue)} messages for {receiver}")

    def _left_alone(self, node: int) -> bool:
        """It comes back when the ring is over: nobody is there any more whom it could ask."""
        others = [other for other in self.honest if other != node]
        gone = sum(self.ended.get(other) == "done" for other in others)
        return len(others) - gone < NODES // 2

    def _done(self, node: int) -> bool:
        return node in self.peers and self.peers[node].status.phase == agreement.DONE

    def _say(self, event: str, **more: Any) -> None:
        if self.tell:
            facts = " ".join(f"{key}={value}" for key, value in more.items())
            print(f"{self.world.now:9.3f}  node {self.world.node}  {event}  {facts}")

    # -- what must hold ------------------------------------------------------------------------

    def _says(self, sender: Identity, frames: list[bytes]) -> list[bytes]:
        """An honest node never signs two different bodies under one number."""
        if sender.node in self.insiders:
            return self.insiders[sender.node].says(sender, frames)
        manifest = decode(frames[0])
        key = (sender.node, manifest.stage, manifest.kind, manifest.round)
        signed = self._signed.setdefault(key, manifest.sha256)
        if manifest.kind != REJOIN and signed != manifest.sha256:  # a note may ask once more
            self._violated(f"node {sender.node} signed two bodies for round {manifest.round}")
        return frames

    def _judge(self) -> None:
        for node in self.honest:
            here = self.peers.get(node)
            excluded = set() if here is None else set(here.transport.evidence.excluded)
            for other in excluded & set(self.honest):
                self._violated(f"honest node {other} was excluded by node {node}")
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

    # -- the peers' machine --------------------------------------------------------------------

    @contextmanager
    def _here(self) -> Iterator[None]:
        """Peers' code with this world's clock, threads and network."""
        world = self.world
        clock = SimpleNamespace(
            monotonic=world.monotonic, time=world.monotonic, perf_counter=world.monotonic
        )
        kinds: dict[str, Any] = {
            "Condition": lambda: Condition(world),
            "Event": lambda: Event(world),
            "Lock": lambda: Lock(world),
            "RLock": lambda: Lock(world),
            "Semaphore": lambda value=1: Semaphore(world, value),
            "Thread": partial(Thread, world),
        }
        threading = SimpleNamespace(**kinds)
        names = {"time": clock, "threading": threading, **kinds, "say": self._say}
        modules = [
            agreement, connections, counters, engine, evidence, gossip, guard, inbox, journal,
            liveness, outbox, peer, reception, recording, start, status, transport,
        ]  # fmt: skip
        chosen = SimpleNamespace(SystemRandom=lambda: world.random)
        with ExitStack() as patched:
            for module in modules:
                for name, value in names.items():
                    if hasattr(module, name):
                        patched.enter_context(patch.object(module, name, value))
            patched.enter_context(patch.object(gossip, "random", chosen))
            patched.enter_context(patch.object(rpc, "server", self.network.server))
            patched.enter_context(patch.object(rpc, "channel", self.network.channel))
            patched.enter_context(patch.object(peer, "seconds_of_a_turn", lambda *a: TURN))
            for module in (journal, disk):
                patched.enter_context(patch.object(module, "os", self.disks))
            defaults = (world.monotonic,)
            patched.enter_context(patch.object(liveness.Clock.__init__, "__defaults__", defaults))
            yield


def some_weather(draw: random.Random) -> Weather:
    """A swarm: each night has some of the faults, in its own strength."""

    def some(most: float) -> float:
        return draw.uniform(0, most) if draw.random() < 0.5 else 0.0

    return Weather(
        delay=draw.choice([0.001, 0.01, 0.05]),
        lost=some(0.05),
        doubled=some(0.2),
        cut=some(0.1),
        unanswered=some(0.1),
        slow=some(0.2),
        longest=draw.uniform(0.1, 5.0),
    )


def night(seed: int, quiet: bool = False, tell: bool = False) -> Outcome:
    """`tell`: print what the nodes log, and what happens to them."""
    torch.set_num_threads(1)
    root = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="basil-night-", dir=root) as folder:
        return Night(seed, Path(folder), quiet, tell).run()
