"""The sections and keys of a recipe, with their defaults."""

from dataclasses import dataclass, field
from typing import Any, get_type_hints

from basil.attack import ATTACKS
from basil.attack.basket_faults import FAULTS
from basil.data import DATASETS, PARTITIONS
from basil.data.sensitive import SENSITIVE
from basil.learning.metrics import METRICS
from basil.learning.models import LOSSES, MODELS
from basil.learning.optimizers import OPTIMIZERS
from basil.learning.schedule import SCHEDULES
from basil.protocol.graph.mixing import MIXINGS
from basil.protocol.numbering import RING, STAGES
from basil.protocol.rules import RULES
from basil.protocol.schemes import RINGS, SCHEMES, runs_on
from basil.table import Table
from basil.theory import TABLE_III
from basil.topology import GRAPHS, WEIGHTS

NO_ATTACK = "none"
MEASURED = "measured"
Options = dict[str, Any]


@dataclass(frozen=True)
class Data:
    dataset: str = "digits"
    partition: str = "iid"
    augment: bool = False  # images to train on are moved and mirrored at random
    dealt_to: int = 0  # nodes; more than take part: the rest of the data lies idle.  0: these alone
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """Node `node` misses the rounds leaves, …, returns − 1 (without `returns`: it stays away).

    It leaves before the first of them, or in it, before a later stage.
    """

    node: int
    leaves: int
    returns: int | None = None
    stage: str = RING


@dataclass(frozen=True)
class RingPart:
    nodes: int = 20
    byzantine: int = 0
    connectivity: int | None = None  # S; default b + 1
    # Of the Byzantine nodes; "row": all in one, the worst case; "rows": in several, see `row`.
    placement: str = "random"
    row: int | None = None  # nodes in each of the rows; default S − 1
    dropouts: int | None = None  # d of Appendix C; default: the most nodes away at once
    events: tuple[Event, ...] = ()
    # Schemes on several rings; the others do not look at it:
    groups: int = 1  # G
    group_rounds: int = 1  # τ, rounds of each ring in a global round
    fanout: int = 0  # groups in a ring of rings; 0: all in one, as in the paper


@dataclass(frozen=True)
class GraphPart:
    """Who is connected to whom, for schemes that work on a graph (App. H-B)."""

    name: str = "erdos-renyi"
    weights: str = "uniform"  # with which g-plain, gossip and ios mix
    mixing: str = "none"  # what is done to models before a rule combines them
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class SharingPart:
    """Anonymous data sharing before the training (§IV, Algorithm 2)."""

    alpha: float = 0.0  # share of its data that each node gives; 0: nothing is shared
    batches: int = 5  # H
    groups: int = 1  # G
    sensitive: str = "none"  # which samples never leave their node
    dummies: str = "noise"  # or "held-out": a share of the training set, set aside as public
    public: float = 0.01  # that share
    public_file: str = ""  # for dummies = "file": a .npz with x and y, public or made by anything
    opening: bool = False  # a round of dummies first
    senders: int = 1  # nodes of each group that share it with the others
    epsilon: float = 0.0  # of the Gaussian noise on each shared sample; 0: none
    delta: float = 1e-5
    clip: float = 1.0  # largest norm of a sample before noise, in standard deviations · √d
    label_epsilon: float = 0.0  # of the noise on its label; 0: none
    fault: str = "none"  # what Byzantine nodes do to the baskets
    fault_round: int = 1  # from this round on
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Scheme:
    name: str = "basil"
    rule: str = "lowest-loss"
    rounds: int = 60
    scoring: str = "arrival"  # or "turn", when the paper does it: slower, the same result
    # Models in canonical form, and averages judged by what becomes of them:
    # docs/research/symmetry.md.  The paper has neither, and its figures are made without.
    canonical: bool = True
    # Models are judged on as many samples of each class: docs/research/rules.md.
    by_class: bool = False
    descent: bool = False  # a step that raises the loss is not taken: docs/research/symmetry.md
    average: bool = False  # what a node shows, and has in the end, may be a mean of models
    extrapolate: float = 0.0  # mean turns of the last lap to begin ahead: docs/research/rules.md
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Learning:
    model: str = "mlp"
    loss: str = ""  # "": cross-entropy, for regression squares
    batch: int = 32
    local_steps: int = 1
    local_epochs: int = 0  # if positive: whole passes over the local data instead of local_steps
    schedule: str = "inverse"
    rate: float = 0.03
    optimizer: str = "sgd"
    optimizer_state: str = "kept"  # from turn to turn, or "none"
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class AttackPart:
    name: str = NO_ATTACK
    start: int | None = None  # first round of the attack; default: the attack's own
    stages: tuple[str, ...] = STAGES  # in which Byzantine nodes lie, where a round has several
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class TimePart:
    """The virtual clock; the defaults are the paper's own (App. H-D, Table III)."""

    forward: float | str = TABLE_III.forward  # seconds to evaluate one batch, or "measured"
    step: float | str = TABLE_III.step  # seconds for one SGD step, or "measured"
    megabits: float = float(TABLE_III.megabits_per_second)  # of a link
    latency: float = 0.0  # seconds
    distance: float | str = TABLE_III.distance / 10  # between two models; the table has 10 of them
    average: float | str = TABLE_III.aggregate  # of the models of a round
    patience: float = 3.0  # a silent node is given up after this many turns' time


@dataclass(frozen=True)
class RecordPart:
    every: int = 5  # rounds between two evaluations on the test set
    test_samples: int = 0  # 0: the whole test set
    checkpoint: float = 30.0  # seconds between two checkpoints
    models: bool = True  # keep the final models
    metrics: tuple[str, ...] = ()  # what is measured beside loss and accuracy
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Compare:
    """What `basil compare` puts side by side unless the command line says otherwise."""

    schemes: tuple[str, ...] = ()
    attacks: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Recipe:
    seed: int = 0
    data: Data = field(default_factory=Data)
    ring: RingPart = field(default_factory=RingPart)
    graph: GraphPart = field(default_factory=GraphPart)
    sharing: SharingPart = field(default_factory=SharingPart)
    scheme: Scheme = field(default_factory=Scheme)
    learning: Learning = field(default_factory=Learning)
    attack: AttackPart = field(default_factory=AttackPart)
    time: TimePart = field(default_factory=TimePart)
    record: RecordPart = field(default_factory=RecordPart)
    compare: Compare = field(default_factory=Compare)

    @property
    def canonical(self) -> bool:
        """Are models brought to canonical form?"""
        return self.scheme.canonical and self.scheme.name != "basil-published"

    def evaluated_in(self, k: int) -> bool:
        """Are models held against the test set after round k?"""
        return k % self.record.every == 0 or k == self.scheme.rounds

    def averages_in(self, k: int) -> bool:
        """Does a node show a mean of models in round k?  Only where somebody looks."""
        return self.scheme.average and self.evaluated_in(k)

    @property
    def groups(self) -> int:
        """G: how many rings there are."""
        return self.ring.groups if runs_on(self.scheme.name) == RINGS else 1

    @property
    def ring_size(self) -> int:
        """n: nodes on a ring; where their numbers differ by one, on the smaller ones."""
        return self.ring.nodes // max(1, self.groups)

    @property
    def laps(self) -> int:
        """τ: rounds of a ring in a (global) round."""
        return self.ring.group_rounds if runs_on(self.scheme.name) == RINGS else 1

    @property
    def connectivity(self) -> int:
        """S = min(n − 1, b + 1) unless the recipe says otherwise (§III-A, §V-A)."""
        if self.ring.connectivity is not None:
            return self.ring.connectivity
        return min(self.ring.byzantine + 1, self.ring_size - 1)

    @property
    def row(self) -> int:
        """How many Byzantine nodes stand in each of several rows.

        By default S − 1, the longest row that leaves every benign node one benign predecessor.
        """
        return self.connectivity - 1 if self.ring.row is None else self.ring.row

    @property
    def reach(self) -> int:
        """S + d: to how many successors a model is sent (Appendix C)."""
        dropouts, events = self.ring.dropouts, self.ring.events
        if dropouts is None:  # as many as are away at the same time
            dropouts = max((away_in(e.leaves, events) for e in events), default=0)
        return min(self.connectivity + dropouts, self.ring_size - 1)


def away_in(k: int, events: tuple[Event, ...]) -> int:
    """How many nodes miss round k."""
    return sum(e.leaves <= k and (e.returns is None or k < e.returns) for e in events)


SECTIONS: dict[str, type[Any]] = {
    name: kind for name, kind in get_type_hints(Recipe).items() if name != "seed"
}

# Which tables a section's extra options come from: (key that names the entry, table).
OPTION_TABLES: dict[str, list[tuple[str, Table[Any]]]] = {
    "data": [("dataset", DATASETS), ("partition", PARTITIONS)],
    "graph": [("name", GRAPHS), ("weights", WEIGHTS), ("mixing", MIXINGS)],
    "sharing": [("sensitive", SENSITIVE), ("fault", FAULTS)],
    "scheme": [("name", SCHEMES), ("rule", RULES)],
    "learning": [
        ("model", MODELS),
        ("loss", LOSSES),
        ("schedule", SCHEDULES),
        ("optimizer", OPTIMIZERS),
    ],
    "attack": [("name", ATTACKS)],
    "record": [("metrics", METRICS)],
}


def names_in(value: Any) -> tuple[str, ...]:
    """The entries that a key names: one, or a list of them."""
    return (value,) if isinstance(value, str) else tuple(value)
