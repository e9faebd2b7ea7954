"""Who takes part in an experiment, where they stand, and who of them is Byzantine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from basil import rng
from basil.attack import ArmedAttack, armed
from basil.errors import UserError
from basil.experiment.options import options_of
from basil.protocol.schemes import GRAPH, POOL, RINGS, runs_on
from basil.recipe import NO_ATTACK, Event, Recipe
from basil.recipe.schema import AttackPart
from basil.theory import disconnected
from basil.topology import (
    CENTRALITIES,
    GRAPHS,
    WEIGHTS,
    Graph,
    Grouping,
    Population,
    Ring,
    agree_on_order,
    build_graph,
    in_rows,
)


@dataclass(frozen=True, eq=False)
class Participants:
    """The nodes of an experiment."""

    recipe: Recipe
    ring: Ring
    byzantine: frozenset[int]
    members: Sequence[int]  # whose turns are run here
    grouping: Grouping | None = None
    graph: Graph | None = None
    attack: ArmedAttack | None = None

    @cached_property
    def benign(self) -> list[int]:
        return [node for node in self.ring.order if node not in self.byzantine]

    @property
    def pooled(self) -> bool:
        """Does one node hold all data?  Then the others have no part."""
        return runs_on(self.recipe.scheme.name) == POOL

    @property
    def turns(self) -> int:
        """Of benign members, in the whole run."""
        benign = len(self.members) - len(self.byzantine.intersection(self.members))
        return benign * self.recipe.scheme.rounds * self.recipe.laps

    @property
    def shares(self) -> bool:
        """Is data shared?  Not where one node has all of it anyway."""
        return self.recipe.sharing.alpha > 0 and not self.pooled

    @property
    def events(self) -> tuple[Event, ...]:
        """Who is away, and when."""
        return () if self.pooled else self.recipe.ring.events

    @property
    def connectivity(self) -> int:
        """How many predecessors' models a node of the ring stores."""
        undefended = self.recipe.scheme.name in ("r-plain", "r-plain+")
        return 1 if undefended else self.recipe.connectivity

    def ring_of(self, node: int) -> Ring:
        return self.grouping.ring_of(node) if self.grouping else self.ring

    def weights(self, node: int) -> dict[int, float]:
        """Whose models a node takes in, and how much each counts: on a ring, all alike."""
        if self.graph:
            return dict(WEIGHTS[self.recipe.graph.weights](self.graph, node))
        reach = self.recipe.reach - self.recipe.connectivity + self.connectivity
        return dict.fromkeys(self.ring_of(node).behind(node, reach), 1 / reach)

    def senders(self, node: int) -> frozenset[int]:
        """Who may send this node a model: where there are several rings, those of others too."""
        if self.grouping is not None and len(self.grouping) > 1:
            return frozenset(self.ring.order) - {node}
        return frozenset(self.weights(node))

    def receivers(self, node: int) -> tuple[int, ...]:
        if self.graph:
            return self.graph.neighbours[node]
        return self.ring_of(node).ahead(node, self.recipe.reach)

    def _group_failures(self, grouping: Grouping) -> dict[str, list[int]]:
        """In which groups the event of Prop. 5 has happened: S Byzantine nodes in a row.

        In the worst of them these are the last S: nobody honest passes the average on.
        """
        S, byzantine = self.connectivity, self.byzantine
        failed = [
            g
            for g, ring in enumerate(grouping.rings)
            if disconnected([node in byzantine for node in ring.order], S)
        ]
        cut = [g for g in failed if byzantine.issuperset(grouping.last(g, S))]
        return {"failed_groups": failed, "cut_groups": cut}

    def facts(self) -> dict[str, Any]:
        """For the record."""
        found: dict[str, Any] = {
            "order": list(self.ring.order),
            "byzantine": sorted(self.byzantine),
        }
        if self.grouping is not None:
            found["groups"] = [list(ring.order) for ring in self.grouping.rings]
            found.update(self._group_failures(self.grouping))
        if self.graph is not None:
            degrees = self.graph.degrees
            found["graph"] = {
                "edges": sum(degrees) // 2,
                "degrees": [min(degrees), max(degrees)],
                "redraws": self.graph.redraws,
                # Benign nodes with as many Byzantine as honest neighbours: no rule can help them.
                "outnumbered": sum(
                    2 * len(self.byzantine.intersection(self.graph.neighbours[node]))
                    >= self.graph.degree(node)
                    for node in self.benign
                ),
            }
        return found


def gather(recipe: Recipe) -> Participants:
    """All nodes, and the recipe's attack."""
    return replace(_placed(recipe), attack=_arm(recipe, recipe.attack))


def gather_for(recipe: Recipe, node: int, role: AttackPart) -> Participants:
    """The same places; but only `node` is run, and what it does is its role, not the recipe's."""
    everybody = _placed(recipe)
    byzantine = everybody.byzantine - {node}
    if role.name != NO_ATTACK:
        byzantine |= {node}
    return replace(everybody, byzantine=byzantine, members=[node], attack=_arm(recipe, role))


def _placed(recipe: Recipe) -> Participants:
    ring = Ring(agree_on_order(range(recipe.ring.nodes), recipe.seed))
    byzantine = choose_byzantine(recipe, ring)
    everybody = Participants(recipe, ring, byzantine, list(range(recipe.ring.nodes)))
    if everybody.pooled:
        return replace(everybody, members=[min(everybody.benign)])
    if runs_on(recipe.scheme.name) == RINGS:
        grouping = Grouping(ring.order, recipe.groups, recipe.ring.fanout)
        return replace(everybody, grouping=grouping)
    if runs_on(recipe.scheme.name) == GRAPH:
        options = options_of(recipe.graph, GRAPHS, "name")
        people = Population(ring.order, byzantine)
        placed = None
        if byzantine and recipe.ring.placement in CENTRALITIES:
            placed = partial(_most_central, recipe, _by_chance(recipe))
        graph = build_graph(recipe.graph.name, people, recipe.seed, options, placed)
        return replace(everybody, graph=graph, byzantine=graph.byzantine)
    return everybody


def _arm(recipe: Recipe, part: AttackPart) -> ArmedAttack | None:
    if part.name == NO_ATTACK:
        return None
    attack, start, every, options = armed(part.name, part.start, part.options)
    if attack.needs_sharing and recipe.sharing.alpha == 0:
        raise UserError(
            f"attack.name = {part.name!r} uses samples that others have shared: set"
            " sharing.alpha, the share of its data that each node gives"
        )
    return ArmedAttack(attack, options, start, every, recipe.attack.stages)


def choose_byzantine(recipe: Recipe, ring: Ring) -> frozenset[int]:
    """b nodes at random, or b in a row on the ring (the worst case, §III-A), or in rows.

    Without an attack nobody does.  By how central they are, only on a graph, when that is drawn.
    """
    N, b = recipe.ring.nodes, recipe.ring.byzantine
    if recipe.attack.name == NO_ATTACK or b == 0:
        return frozenset()
    stream = rng.stream(recipe.seed, "byzantine")
    if recipe.ring.placement == "row":
        return frozenset(ring.ahead(int(stream.integers(N)), b))
    if recipe.ring.placement == "rows":
        return frozenset(ring.order[p] for p in in_rows(N, b, recipe.row, stream))
    return frozenset(_by_chance(recipe)[:b])


def _most_central(recipe: Recipe, order: list[int], graph: Any) -> frozenset[int]:
    """Of equally central ones, those that chance would have taken."""
    scores = CENTRALITIES[recipe.ring.placement](graph)
    ranked = sorted(order, key=lambda node: -round(scores[node], 9))
    return frozenset(ranked[: recipe.ring.byzantine])


def _by_chance(recipe: Recipe) -> list[int]:
    """All nodes in an order whose first b are Byzantine, if nothing else decides."""
    stream = rng.stream(recipe.seed, "byzantine")
    return [int(i) for i in stream.permutation(recipe.ring.nodes)]
