"""Who takes part in an experiment, where they stand, what they hold, and who of them lies."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from basil import rng
from basil.attack import Attack, DataAttack, armed, lies_in, poisoned
from basil.data import PARTITIONS, Dataset, Samples
from basil.errors import UserError
from basil.experiment.offers import Offers, batch_size, make_dummies, make_offers
from basil.experiment.options import options_of
from basil.protocol.schemes import GRAPH, POOL, RINGS, runs_on
from basil.recipe import NO_ATTACK, Event, Recipe
from basil.recipe.schema import AttackPart
from basil.theory import disconnected
from basil.topology import (
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


class Cast:
    """The nodes of an experiment."""

    def __init__(self, recipe: Recipe, data: Dataset) -> None:
        self._recipe = recipe
        self.ring = Ring(agree_on_order(range(recipe.ring.nodes), recipe.seed))
        self.byzantine = choose_byzantine(recipe, self.ring)
        self.benign = [node for node in self.ring.order if node not in self.byzantine]
        self.grouping: Grouping | None = None
        if runs_on(recipe.scheme.name) == RINGS:
            self.grouping = Grouping(self.ring.order, recipe.groups, recipe.ring.fanout)
        self.graph = self._connect()
        # Where one node holds all data, the others have no part.
        self.pooled = runs_on(recipe.scheme.name) == POOL
        self.members = [min(self.benign)] if self.pooled else list(range(recipe.ring.nodes))
        self.public = self._hold_out(data)  # samples that no node owns
        self.local = self._deal(data)
        self.attack: Attack | None = None  # with its rounds and its options
        self.attack_start, self.attack_every, self.attack_options = 1, 1, dict[str, Any]()
        self._arm(recipe.attack)
        self.poisoned: dict[int, NDArray[np.int64]] = {}
        self.train = self._poison(data)
        self.offers: Offers | None = None
        if self.shares:
            self.offers = self._offer(data)
            self.train = self.offers.train
        self.received: dict[int, NDArray[np.int64]] = {}  # from others, before the training

    def _offer(self, data: Dataset) -> Offers:
        return self._offer_of(data, data.train, len(data.train))

    def _offer_of(
        self,
        data: Dataset,
        like: Samples,
        samples: int,
        chance: Callable[[int], np.random.Generator] | None = None,
    ) -> Offers:
        """`like`: what dummies look like; `samples`: how many all nodes hold together."""
        recipe, own, lies = self._recipe, self.local, self.poisoned
        size, made = batch_size(recipe, samples), make_dummies(recipe, like, samples)
        return make_offers(recipe, data, self.train, own, lies, self.public, size, made, chance)

    def _arm(self, part: AttackPart) -> None:
        if part.name != NO_ATTACK:
            self.attack, self.attack_start, self.attack_every, self.attack_options = armed(
                part.name, part.start, part.options
            )
            if self.attack.needs_sharing and self._recipe.sharing.alpha == 0:
                raise UserError(
                    f"attack.name = {part.name!r} uses samples that others have shared: set"
                    " sharing.alpha, the share of its data that each node gives"
                )

    def _connect(self) -> Graph | None:
        recipe = self._recipe
        if runs_on(recipe.scheme.name) != GRAPH:
            return None
        people = Population(self.ring.order, self.byzantine)
        known = GRAPHS.options(recipe.graph.name)
        options = {key: value for key, value in recipe.graph.options.items() if key in known}
        return build_graph(recipe.graph.name, people, recipe.seed, options)

    @property
    def shares(self) -> bool:
        """Is data shared?  Not where one node has all of it anyway."""
        return self._recipe.sharing.alpha > 0 and not self.pooled

    def _hold_out(self, data: Dataset) -> NDArray[np.int64]:
        part = self._recipe.sharing
        if not self.shares or part.dummies != "held-out":
            return np.zeros(0, np.int64)
        count = int(part.public * len(data.train))
        if count < 1:
            raise UserError(
                f"sharing.public = {part.public}: of {len(data.train)} samples that is none"
            )
        stream = rng.stream(self._recipe.seed, "public")
        return np.sort(stream.permutation(len(data.train))[:count])

    def _deal(self, data: Dataset) -> dict[int, NDArray[np.int64]]:
        recipe = self._recipe
        deal = PARTITIONS[recipe.data.partition]
        options = options_of(recipe.data, PARTITIONS, "partition")
        stream = rng.stream(recipe.seed, "partition")
        labels = np.delete(data.train.y, self.public)
        parts = deal(labels, recipe.data.dealt_to or recipe.ring.nodes, stream, **options)
        if recipe.data.dealt_to:  # more have data than take part
            some = rng.stream(recipe.seed, "participants").permutation(len(parts))
            parts = [parts[i] for i in np.sort(some[: recipe.ring.nodes])]
        if len(self.public):
            owned = np.delete(np.arange(len(data.train)), self.public)
            parts = [owned[part] for part in parts]
        largest = max(map(len, parts))
        if recipe.learning.batch > largest:
            raise UserError(
                f"learning.batch = {recipe.learning.batch}: no node has more than {largest} samples"
            )
        return dict(enumerate(parts))

    def _poison(self, data: Dataset) -> Samples:
        """The training samples, followed by those that Byzantine nodes use instead of their own."""
        if not isinstance(self.attack, DataAttack):
            return data.train
        theirs = {node: self.local[node] for node in sorted(self.byzantine & self.local.keys())}
        seed, options = self._recipe.seed, self.attack_options
        train, self.poisoned = poisoned(self.attack, data, theirs, seed, options)
        return train

    def triggered(self, data: Dataset) -> Samples | None:
        """Test samples on which a backdoor wants its own label."""
        if not isinstance(self.attack, DataAttack) or self.attack.triggered is None:
            return None
        samples: Samples = self.attack.triggered(data.test, data, **self.attack_options)
        return samples

    def samples(self, node: int, k: int) -> NDArray[np.int64]:
        """What a node draws from in round k."""
        if self.pooled:
            return self._pool
        lies = node in self.poisoned and lies_in(k, self.attack_start, self.attack_every)
        own = self.poisoned[node] if lies else self.local[node]
        return np.concatenate([own, self.received[node]]) if node in self.received else own

    @cached_property
    def _pool(self) -> NDArray[np.int64]:
        """The data of all benign nodes."""
        return np.concatenate([self.local[node] for node in self.benign])

    @property
    def events(self) -> tuple[Event, ...]:
        """Who is away, and when."""
        return () if self.pooled else self._recipe.ring.events

    @property
    def connectivity(self) -> int:
        """How many predecessors' models a node of the ring stores."""
        undefended = self._recipe.scheme.name in ("r-plain", "r-plain+")
        return 1 if undefended else self._recipe.connectivity

    def ring_of(self, node: int) -> Ring:
        return self.grouping.ring_of(node) if self.grouping else self.ring

    def weights(self, node: int) -> dict[int, float]:
        """Whose models a node takes in, and how much each counts: on a ring, all alike."""
        if self.graph:
            return dict(WEIGHTS[self._recipe.graph.weights](self.graph, node))
        reach = self._recipe.reach - self._recipe.connectivity + self.connectivity
        return dict.fromkeys(self.ring_of(node).behind(node, reach), 1 / reach)

    def senders(self, node: int) -> frozenset[int]:
        """Who may send this node a model: where there are several rings, those of others too."""
        if self.grouping is not None and len(self.grouping) > 1:
            return frozenset(self.ring.order) - {node}
        return frozenset(self.weights(node))

    def receivers(self, node: int) -> tuple[int, ...]:
        if self.graph:
            return self.graph.neighbours[node]
        return self.ring_of(node).ahead(node, self._recipe.reach)

    def _group_failures(self, grouping: Grouping) -> dict[str, list[int]]:
        """In which groups the event of Prop. 5 has happened: S Byzantine nodes in a row.

        In the worst of them these are the last S: nobody honest passes the average on.
        """
        S, liars = self.connectivity, self.byzantine
        failed = [
            g
            for g, ring in enumerate(grouping.rings)
            if disconnected([node in liars for node in ring.order], S)
        ]
        cut = [g for g in failed if liars.issuperset(grouping.last(g, S))]
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
                # Benign nodes with as many liars as honest neighbours: no rule can help them.
                "outnumbered": sum(
                    2 * len(self.byzantine.intersection(self.graph.neighbours[node]))
                    >= self.graph.degree(node)
                    for node in self.benign
                ),
            }
        return found


def choose_byzantine(recipe: Recipe, ring: Ring) -> frozenset[int]:
    """Who lies: b nodes at random, or b in a row on the ring (the worst case, §III-A), or in rows.

    Without an attack nobody does.
    """
    N, b = recipe.ring.nodes, recipe.ring.byzantine
    if recipe.attack.name == NO_ATTACK or b == 0:
        return frozenset()
    stream = rng.stream(recipe.seed, "byzantine")
    if recipe.ring.placement == "row":
        return frozenset(ring.ahead(int(stream.integers(N)), b))
    if recipe.ring.placement == "rows":
        return frozenset(ring.order[p] for p in in_rows(N, b, recipe.row, stream))
    return frozenset(int(i) for i in stream.permutation(N)[:b])
