"""How a node is started, and the part in the run that this gives it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from basil import data
from basil.attack import options_of as attack_options
from basil.data.own import load_own
from basil.errors import UserError
from basil.experiment import LocalNode, local_node
from basil.experiment.options import options_of
from basil.experiment.participants import Participants
from basil.peer.members.roster import Roster
from basil.peer.run.agreement import Quorum
from basil.peer.run.liveness import FLOOR
from basil.recipe import NO_ATTACK, Recipe
from basil.recipe.schema import AttackPart


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
    members, asked = len(roster.ids), options.quorum
    if asked is None:
        sources = frozenset(who.weights(who.members[0])).intersection(roster.ids)
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
    role = AttackPart()
    if options.attack != NO_ATTACK:
        same = recipe.attack.name == options.attack
        role = (
            recipe.attack
            if same
            else AttackPart(options.attack, options=attack_options(options.attack, {}))
        )
    return local_node(recipe, samples, node, role, own=options.data is not None)
