"""Who takes part in an experiment, where they stand, what they hold, and who of them lies."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from basil import rng
from basil.attack import Attack, DataAttack, armed, poisoned
from basil.data import PARTITIONS, Dataset, Samples
from basil.data.samples import Array
from basil.errors import UserError
from basil.experiment.options import options_of
from basil.protocol.schemes import GRAPH_SCHEMES, POOLED_SCHEMES
from basil.recipe import NO_ATTACK, Event, Recipe
from basil.recipe.schema import AttackPart
from basil.topology import GRAPHS, WEIGHTS, Graph, Population, Ring, agree_on_order, build_graph


class Cast:
    """The nodes of an experiment."""

    def __init__(self, recipe: Recipe, data: Dataset) -> None:
        self._recipe = recipe
        self.ring = Ring(agree_on_order(range(recipe.ring.nodes), recipe.seed))
        self.byzantine = choose_byzantine(recipe, self.ring)
        self.benign = [node for node in self.ring.order if node not in self.byzantine]
        self.graph = self._connect()
        # Where one node holds all data, the others have no part.
        self.pooled = recipe.scheme.name in POOLED_SCHEMES
        self.members = [min(self.benign)] if self.pooled else list(range(recipe.ring.nodes))
        self.public = self._hold_out(data)  # samples that no node owns
        self.local = self._deal(data)
        self.attack: Attack | None = None  # with its first round and its options
        self.attack_start, self.attack_options = 1, dict[str, Any]()
        self._arm(recipe.attack)
        self.poisoned: dict[int, NDArray[np.int64]] = {}
        self.train = self._poison(data)
        self.dummies = self.public
        if self.shares and recipe.sharing.dummies == "noise":
            self.train, self.dummies = _with_noise(self.train, data, recipe)
        self.received: dict[int, NDArray[np.int64]] = {}  # from others, before the training

    def _arm(self, part: AttackPart) -> None:
        if part.name != NO_ATTACK:
            self.attack, self.attack_start, self.attack_options = armed(
                part.name, part.start, part.options
            )

    def _connect(self) -> Graph | None:
        recipe = self._recipe
        if recipe.scheme.name not in GRAPH_SCHEMES:
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
        parts = deal(labels, recipe.ring.nodes, stream, **options)
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
        lies = node in self.poisoned and k >= self.attack_start
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
        return 1 if self._recipe.scheme.name == "r-plain" else self._recipe.connectivity

    def weights(self, node: int) -> dict[int, float]:
        """Whose models a node takes in, and how much each counts: on a ring, all alike."""
        if self.graph:
            return dict(WEIGHTS[self._recipe.graph.weights](self.graph, node))
        reach = self._recipe.reach - self._recipe.connectivity + self.connectivity
        return dict.fromkeys(self.ring.behind(node, reach), 1 / reach)

    def receivers(self, node: int) -> tuple[int, ...]:
        if self.graph:
            return self.graph.neighbours[node]
        return self.ring.ahead(node, self._recipe.reach)

    def facts(self) -> dict[str, Any]:
        """For the record."""
        found: dict[str, Any] = {
            "order": list(self.ring.order),
            "byzantine": sorted(self.byzantine),
        }
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


def _with_noise(train: Samples, data: Dataset, recipe: Recipe) -> tuple[Samples, NDArray[np.int64]]:
    """The training samples, followed by noise of their shape: dummies, which nobody trains on."""
    count = max(1, int(recipe.sharing.alpha * len(data.train)))
    dummies = noise(train, train.y, count, rng.stream(recipe.seed, "dummies"))
    x, y = np.concatenate([train.x, dummies.x]), np.concatenate([train.y, dummies.y])
    return Samples(x, y), np.arange(len(train), len(train) + count)


def noise(like: Samples, labels: Array, count: int, stream: np.random.Generator) -> Samples:
    """Samples of this kind that show nothing, with labels drawn from these."""
    shape = (count, *like.x.shape[1:])
    if like.x.dtype == np.uint8:
        x: Array = stream.integers(256, size=shape, dtype=np.uint8)
    else:
        x = stream.normal(size=shape).astype(like.x.dtype)
    return Samples(x, stream.choice(labels, count))


def choose_byzantine(recipe: Recipe, ring: Ring) -> frozenset[int]:
    """Who lies: b nodes at random, or b in a row on the ring (the worst case, §III-A).

    Without an attack nobody does.
    """
    if recipe.attack.name == NO_ATTACK:
        return frozenset()
    stream = rng.stream(recipe.seed, "byzantine")
    N, b = recipe.ring.nodes, recipe.ring.byzantine
    if recipe.ring.placement == "row":
        return frozenset(ring.ahead(int(stream.integers(N)), b))
    return frozenset(int(i) for i in stream.permutation(N)[:b])
