"""How a node is started, the part in the run that this gives it, and how fast it is."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from basil import data
from basil.attack import options_of as attack_options
from basil.data.own import load_own
from basil.errors import UserError
from basil.experiment import LocalNode, Setup, local_node
from basil.experiment.machine import median_seconds
from basil.experiment.options import options_of
from basil.experiment.participants import Participants
from basil.host import host
from basil.learning.pool import Batch
from basil.peer.members.roster import Roster
from basil.peer.run.agreement import Quorum
from basil.peer.run.liveness import FLOOR
from basil.recipe import NO_ATTACK, Recipe
from basil.recipe.schema import AttackPart
from basil.record import checkpoint

TIMES = 3  # a median of so many


@dataclass(frozen=True)
class Options:
    """How a node is started."""

    folder: Path
    attack: str = NO_ATTACK  # what it does, whatever the recipe says: for drills
    data: Path | None = None  # samples of its own
    device: str = "auto"
    listen: str | None = None  # host:port, if it is not the address in the roster
    metrics: str | None = None  # host:port
    twin: bool = False  # with the simulator's shuffles, and in its order
    patience: float = FLOOR  # seconds that every turn of another is given at least
    window: float = 60.0  # seconds to wait for all others before the first turn
    linger: float = 30.0  # seconds to stay for the others after the last
    quorum: int | None = None  # nodes that it takes to train; None: more than half, and a source
    alone: float = 300.0  # seconds to wait for a quorum


def quorum_of(
    options: Options, roster: Roster, who: Participants, tell: Callable[[list[int]], None]
) -> Quorum:
    """More than half of the roster, and an honest source; or just as many as were asked for."""
    # Members that were added since the run began have no place in it.
    here = who.ring.position.keys() & set(roster.ids)
    members, asked = len(here), options.quorum
    if asked is None:
        sources = frozenset(who.weights(who.members[0])).intersection(here)
        # Rings with S <= b take the risk that all S are Byzantine: they can ask for no more.
        most = len(sources) if who.graph else min(who.connectivity, len(sources))
        honest = min(most, who.recipe.ring.byzantine + 1)
        return Quorum(members // 2 + 1, options.alone, tell, sources, honest)
    if not 1 <= asked <= members:
        raise UserError(f"--quorum {asked}: it must be from 1 to {members}, as many as take part")
    return Quorum(asked, options.alone, tell)


def local_node_of(recipe: Recipe, node: int, options: Options) -> LocalNode:
    """Its own samples, or its share of the recipe's; honest, unless it was told to lie."""
    if options.data is not None:
        samples = load_own(options.data)
    else:
        chosen = options_of(recipe.data, data.DATASETS, "dataset")
        samples = data.load(recipe.data.dataset, recipe.seed, **chosen)
    if options.attack == NO_ATTACK:
        role = AttackPart()
    elif options.attack == recipe.attack.name:
        role = recipe.attack
    else:
        role = AttackPart(options.attack, options=attack_options(options.attack, {}))
    return local_node(recipe, samples, node, role, own=options.data is not None)


def seconds_of_a_turn(setup: Setup, folder: Path) -> float:
    """What this machine tells the others before the first one.

    Receive a model, evaluate it, train, and force a checkpoint of S + 2 models to the disk.

    The hop is what the recipe says of links (time.megabits and time.latency): what a link to a
    peer that is not here yet can do is not known before it has been used.
    """
    compute, recipe = setup.compute, setup.recipe
    x0, batch = compute.initial, Batch(np.arange(min(recipe.learning.batch, len(compute.pool))))
    forward = median_seconds(lambda: compute.score(x0, [batch])[0].wait(), compute.device, TIMES)
    step = median_seconds(lambda: compute.train(x0, [batch], 0.0, lambda: 0), compute.device, TIMES)
    begin = host.perf_counter()
    probe = folder / "probe.safetensors"
    models = [x0.clone() for _ in range(recipe.connectivity + 2)]
    checkpoint.save(probe, models, durable=True)
    disk = host.perf_counter() - begin
    probe.unlink()
    hop = setup.timing.link(4 * compute.layout.size)
    steps = setup.tries * setup.node_data.steps_in_a_turn()
    return hop + (1 + setup.checks) * forward + steps * step + disk
