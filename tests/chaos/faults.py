"""What goes wrong in a night: drawn beforehand, so that a night can be had without some of it."""

import random
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from chaos.disks import Disks
from chaos.threads import Clock, World
from chaos.watch import Watch
from chaos.wires import Network, Weather

CALM = 60.0  # simulated seconds from when on nothing goes wrong any more
BAD = CALM / 4  # it begins to go wrong before
CALLS = 120  # of its disk, after which a node stops at the latest
WORST = {"lost": 0.05, "doubled": 0.2, "cut": 0.1, "unanswered": 0.1, "slow": 0.2}


class Plan:
    """The names of what is to happen, and what of it is left out."""

    def __init__(self, without: frozenset[str]) -> None:
        self.without = without
        self.names: list[str] = []

    def has(self, name: str) -> bool:
        self.names.append(name)
        return name not in self.without


def some_weather(draw: random.Random, plan: Plan) -> Weather:
    """A swarm: each night has some of the faults, in its own strength."""
    weather = Weather(delay=draw.choice([0.001, 0.01, 0.05]), longest=draw.uniform(0.1, 5.0))
    for name, most in WORST.items():
        chance = draw.uniform(0, most)
        if draw.random() < 0.5 and plan.has(name):
            setattr(weather, name, chance)
    return weather


def _mostly_short(draw: random.Random) -> float:
    """Up to ten seconds: in the long ones little happens, and they take as long to simulate."""
    return 10 * draw.random() ** 3


class Faults:
    """Of nodes, links, clocks and disks."""

    def __init__(
        self,
        world: World,
        network: Network,
        disks: Disks,
        watch: Watch,
        folder: Path,
        start: Callable[[int, float], None],
        done: Callable[[int], bool],
        say: Callable[..., None],
    ) -> None:
        """`start`: a node, after some seconds.  `done`: has it come to the end of its run?"""
        self._world, self._network, self._disks, self._watch = world, network, disks, watch
        self._folder, self._start, self._done, self._say = folder, start, done, say

    def plan(self, draw: random.Random, plan: Plan, nodes: int, broken: Collection[int]) -> None:
        """`broken`: those whose disks fail them."""

        def at(name: str, moment: float, work: Callable[..., object], *args: Any) -> None:
            if plan.has(name):
                self._world.at(moment, work, *args)

        for number in range(draw.randint(0, 6)):
            node, moment, pause = draw.randrange(nodes), draw.uniform(0.1, BAD), _mostly_short(draw)
            power, calls = draw.random() < 0.5, draw.randrange(CALLS)
            ending = partial(self._kill, node, pause, power)
            if draw.random() < 0.5:
                at(f"kill {number}", moment, ending)
            else:  # right where it writes
                at(f"stop {number}", moment, self._stop, node, calls, ending)
        for number in range(draw.choice([0, 0, 1, 2])):
            node, moment, length = draw.randrange(nodes), draw.uniform(0, BAD), _mostly_short(draw)
            at(f"full {number}", moment, self._fill, node, length)
        for number in range(draw.randint(0, 3)):
            moment, length = draw.uniform(0, BAD), 0.1 + 1.5 * _mostly_short(draw)
            side = set(draw.sample(range(nodes), draw.randint(1, nodes // 2)))
            links = {frozenset((a, b)) for a in side for b in set(range(nodes)) - side}
            at(f"part {number}", moment, self._part, links, length)
        for number in range(draw.choice([0, 0, 1, 2])):
            node, moment, length = draw.randrange(nodes), draw.uniform(0, BAD), _mostly_short(draw)
            at(f"freeze {number}", moment, self._freeze, node, length)
        for number in range(draw.choice([0, 0, 1, 2])):
            node, moment, length = draw.randrange(nodes), draw.uniform(0, BAD), _mostly_short(draw)
            at(f"crowd {number}", moment, self._crowd, node, length)
        for node in range(nodes):
            clock = Clock(draw.uniform(0.9, 1.1), draw.uniform(0, 1e6))
            moment, jump = draw.uniform(0, BAD), draw.uniform(0, 30)
            if draw.random() < 0.2 and plan.has(f"clock {node}"):
                self._world.clocks[node] = clock
                self._world.at(moment, self._jump, node, jump)
        for node in sorted(broken):
            moment, later = draw.uniform(0, BAD), draw.uniform(0.1, 10)
            fails = self._flip if draw.random() < 0.5 else partial(self._turn_back, later)
            at(f"disk {node}", moment, fails, node)
        self._world.at(CALM, self._calm)

    def _happened(self, event: str, **more: Any) -> None:
        self._say(event, more)
        self._network.faults += 1

    def _where(self, node: int) -> Path:
        return self._folder / f"node-{node}"

    # -- nodes ---------------------------------------------------------------------------------

    def _kill(self, node: int, pause: float, power: bool) -> None:
        if self._done(node):
            return
        self._world.kill(node)
        self._disks.stops.pop(node, None)
        self._happened("power cut" if power else "killed", of=node, back_in=f"{pause:.2f} s")
        if power:
            self._watch.cut.add(node)
            self._disks.power_cut(self._where(node))
        self._start(node, pause)

    def _stop(self, node: int, calls: int, ending: Callable[[], object]) -> None:
        self._disks.stops[node] = calls, ending

    def _freeze(self, node: int, length: float) -> None:
        self._happened("frozen", of=node, seconds=f"{length:.2f}")
        self._world.frozen[node] = self._world.now + length

    def _crowd(self, node: int, length: float) -> None:
        """No thread can be started on its machine."""
        self._happened("crowded", of=node, seconds=f"{length:.2f}")
        self._world.crowded.add(node)
        self._world.at(self._world.now + length, self._world.crowded.discard, node)

    def _jump(self, node: int, by: float) -> None:
        """As on a machine that was suspended."""
        self._happened("clock jumps", of=node, seconds=f"{by:.2f}")
        self._world.clocks[node].offset += by

    # -- disks ---------------------------------------------------------------------------------

    def _fill(self, node: int, length: float) -> None:
        self._happened("disk full", of=node, seconds=f"{length:.2f}")
        self._watch.cut.add(node)
        self._disks.full.add(node)
        self._world.at(self._world.now + length, self._disks.full.discard, node)

    def _turn_back(self, later: float, node: int) -> None:
        """A backup is made now, and brought back later: the node does not know what it has said."""
        copy = self._folder / f"backup-{node}"
        self._disks.remember(self._where(node), copy)

        def older() -> None:
            if not self._done(node):
                self._watch.turned_back.add(node)
                self._kill(node, 1.0, power=False)
                self._disks.bring_back(self._where(node), copy)

        self._world.at(self._world.now + later, older)

    def _flip(self, node: int) -> None:
        if not self._done(node):
            self._watch.cut.add(node)
            self._kill(node, 1.0, power=False)
            self._happened("a bit flips", file=self._disks.flip(self._where(node)))

    # -- links ---------------------------------------------------------------------------------

    def _part(self, links: set[frozenset[int]], length: float) -> None:
        self._happened("links break", links=sorted(map(sorted, links)))
        self._network.down |= links
        self._world.at(self._world.now + length, self._heal, links)

    def _heal(self, links: set[frozenset[int]]) -> None:
        self._say("links heal")
        self._network.down -= links

    def _calm(self) -> None:
        self._network.down.clear()
        self._network.weather = Weather()
        self._disks.stops.clear()
