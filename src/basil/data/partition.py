"""How the training samples are dealt to the nodes.

Every entry takes the labels of all the samples, the number of nodes and a random stream, and
returns one array of sample indices for each node.  Every sample goes to exactly one node, and no
node goes without.  An entry that states `by_key` takes the samples' keys in the place of labels.
"""

import heapq
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from basil.data.samples import Array, Samples
from basil.errors import UserError
from basil.table import Table, states

Indices = npt.NDArray[np.int64]

DIRICHLET_DRAWS = 200


def iid(labels: Array, nodes: int, rng: np.random.Generator) -> list[Indices]:
    """Every node gets a like share of the shuffled samples; sizes differ by one at most."""
    check_samples(labels, nodes)
    return _slices(rng.permutation(len(labels)), nodes)


def by_class(labels: Array, nodes: int, rng: np.random.Generator) -> list[Indices]:
    """Samples sorted by class and cut into one slice for each node: hardly two classes at a node.

    With nodes = classes and as many samples of each class, node i holds class i and nothing else.
    The order within a class is random.

    Source: the Basil paper, §VI, its non-IID setting.
    """
    check_samples(labels, nodes)
    return _slices(_sorted_by_class(labels, rng, "sorted"), nodes)


def shards(
    labels: Array, nodes: int, rng: np.random.Generator, *, per_node: int = 2
) -> list[Indices]:
    """Samples sorted by class, cut into nodes x per_node shards, per_node dealt to each at random.

    A node sees little more than per_node classes.

    Source: B. McMahan et al., "Communication-efficient learning of deep networks from
    decentralized data", AISTATS 2017, §3 (there: 100 nodes, 200 shards of 300 samples).
    """
    check_samples(labels, nodes)
    if per_node < 1:
        raise UserError(f"per_node = {per_node}: every node needs at least 1 shard")
    count = nodes * per_node
    if count > len(labels):
        raise UserError(
            f"per_node = {per_node}: {nodes} nodes would need {count} shards, but there are "
            f"{len(labels)} samples; per_node can be {len(labels) // nodes} at most"
        )
    pieces = _slices(_sorted_by_class(labels, rng, "shards"), count)
    deal = rng.permutation(count).reshape(nodes, per_node)
    return [np.concatenate([pieces[shard] for shard in hand]) for hand in deal]


def dirichlet(
    labels: Array,
    nodes: int,
    rng: np.random.Generator,
    *,
    beta: float = 0.5,
    least: int = 1,
) -> list[Indices]:
    """Each class is shared among the nodes in proportions drawn from a Dirichlet distribution.

    For each class c, p_c ~ Dir(β, ..., β) over the nodes, and node i gets the share p_ci of the
    samples of c.  Small β: few classes at a node and nodes of very different size; large β: like
    `iid` by class.  All the proportions are drawn anew until every node has `least` samples.

    Source: T.-M. H. Hsu, H. Qi and M. Brown, "Measuring the effects of non-identical data
    distribution for federated visual classification", arXiv:1909.06335, 2019; drawn class by class
    as by M. Yurochkin et al., "Bayesian nonparametric federated learning of neural networks",
    ICML 2019, so that every sample is used once.
    """
    check_samples(labels, nodes)
    n = len(labels)
    if not 0 < beta < np.inf:
        raise UserError(f"beta = {beta}: the Dirichlet distribution needs a number above 0")
    if least < 1:
        raise UserError(f"least = {least}: a node needs at least 1 sample to train on")
    if nodes * least > n:
        raise UserError(
            f"least = {least}: {nodes} nodes would need {nodes * least} samples, but there are "
            f"{n}; least can be {n // nodes} at most"
        )
    order = _sorted_by_class(labels, rng, "dirichlet")
    sizes = np.unique(labels, return_counts=True)[1]
    for _ in range(DIRICHLET_DRAWS):
        counts = _dirichlet_counts(sizes, nodes, beta, rng)
        if counts.sum(axis=0).min() >= least:
            break
    else:
        raise UserError(
            f"beta = {beta}: in {DIRICHLET_DRAWS} draws over {nodes} nodes and {n} samples some "
            f"node always had fewer than {least}; a larger beta, fewer nodes or more samples would "
            "help" + (", and so would a smaller least" if least > 1 else "")
        )
    # `order` runs class by class and `counts` says how many of each class go to which node.
    owner = np.repeat(np.tile(np.arange(nodes), len(sizes)), counts.ravel())
    ends = np.cumsum(counts.sum(axis=0))
    return np.split(order[np.argsort(owner, kind="stable")], ends[:-1])


@states(by_key=True)
def by_key(keys: Array, nodes: int, rng: np.random.Generator) -> list[Indices]:
    """Whole keys (a speaker, a document) go to one node, about as many samples to each.

    Largest keys first, each to the node that has least so far.  With fewer keys than nodes they
    are cut into fair shares.  A data set with keys is `text`; without, finer labels are the keys.
    """
    check_samples(keys, nodes)
    shuffled = rng.permutation(len(keys))
    order = shuffled[np.argsort(keys[shuffled], kind="stable")].astype(np.int64)
    ends = np.flatnonzero(np.diff(keys[order])) + 1
    pieces = np.split(order, ends)
    if len(pieces) < nodes:
        share = len(keys) // nodes
        pieces = [cut for whole in pieces for cut in _slices(whole, -(-len(whole) // share))]
    pieces = [pieces[i] for i in rng.permutation(len(pieces))]  # chance among equals
    held: list[list[Indices]] = [[] for _ in range(nodes)]
    least = [(0, int(place), int(node)) for place, node in enumerate(rng.permutation(nodes))]
    for piece in sorted(pieces, key=len, reverse=True):
        size, place, node = least[0]
        held[node].append(piece)
        heapq.heapreplace(least, (size + len(piece), place, node))
    return [np.concatenate(hand) for hand in held]


PARTITIONS: Table[Callable[..., list[Indices]]] = Table(
    "partition",
    {
        "iid": iid,
        "sorted": by_class,
        "shards": shards,
        "dirichlet": dirichlet,
        "by-key": by_key,
    },
    takes=("labels", "nodes", "rng"),
)


def dealt_by(partition: str, samples: Samples) -> Array:
    """What a partition of this name goes by: the samples' labels, or their keys."""
    if not getattr(PARTITIONS[partition], "by_key", False):
        return samples.y
    keys = samples.fine if samples.key is None else samples.key
    if keys is None:
        raise UserError(
            f"partition {partition!r} deals samples by their keys, and this data set has none;"
            " 'text' has, and Samples(x, y, key=…)"
        )
    return keys


def check_samples(labels: Array, nodes: int) -> None:
    """Every node gets one at least."""
    if nodes < 1:
        raise UserError(f"nodes = {nodes}: samples are dealt to at least 1 node")
    if nodes > len(labels):
        raise UserError(
            f"nodes = {nodes}: there are only {len(labels)} samples to deal; "
            f"use {len(labels)} nodes at most, or more samples"
        )


def _slices(order: Array, count: int) -> list[Indices]:
    return np.array_split(order.astype(np.int64), count)


def _sorted_by_class(labels: Array, rng: np.random.Generator, partition: str) -> Indices:
    """All indices, class after class, in random order within each class."""
    if not np.issubdtype(labels.dtype, np.integer):
        raise UserError(
            f"partition {partition!r} deals samples by class, but this data set has real numbers "
            "to predict (regression); use 'iid'"
        )
    if labels.ndim > 1:
        raise UserError(
            f"partition {partition!r} deals samples by class, but this data set has a label for "
            "each token; use 'iid', or 'by-key' where samples have keys"
        )
    shuffled = rng.permutation(len(labels))
    order: Indices = shuffled[np.argsort(labels[shuffled], kind="stable")].astype(np.int64)
    return order


def _dirichlet_counts(
    sizes: Array, nodes: int, beta: float, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """How many samples of class c node i gets, [classes, nodes]; row c adds up to sizes[c]."""
    shares = rng.dirichlet(np.full(nodes, beta), size=len(sizes))
    # Rounding the cuts, not the shares, uses up each class to the last sample.
    cuts = np.rint(np.cumsum(shares, axis=1) * sizes[:, None]).astype(np.int64)
    cuts[:, -1] = sizes
    counts: npt.NDArray[np.int64] = np.diff(cuts, axis=1, prepend=0)
    return counts
