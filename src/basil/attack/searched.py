"""Attacks that try out on each receiver's rule how far to go.

A lie to receiver j is a point and a direction; its length is sought by a line search, so that what
j would make of its neighbours' models ends as far as possible from what the benign ones alone
would make of them.  All of j's Byzantine neighbours tell it the same.

Rules that ask for losses cannot be tried out, nor can a ring's: there a fixed length is taken.
"""

import math
import operator
from collections.abc import Callable, Mapping

import numpy as np
from torch import Tensor

from basil.attack.check import at_least, not_negative
from basil.attack.omniscient import benign_of, crowd_of, deviation, largest_z, mean_of_benign
from basil.attack.view import View, declares

Line = Callable[[int], tuple[Tensor, Tensor]]  # from a receiver to a point and a direction


@declares(omniscient=True)
def optimal_alie(view: View, *, tries: int = 20) -> Mapping[int, Tensor]:
    """μ − z σ to each receiver, z as bad as it gets with its rule (A Little Is Enough, optimised).

    As byzfl's Optimal_ALittleIsEnough (Shejwalkar and Houmansadr 2021; Allouah et al. 2023).  Where
    the rule cannot be tried out: `alie` with its z_max.
    """
    models = crowd_of(view).stack(benign_of(view))
    mean = models.mean(0)
    r, b = len(models), len(view.colluders)
    of_sample = math.sqrt(r / max(1, r - 1))  # byzfl's σ
    line = mean, -of_sample * deviation(models, mean)
    return _lies(view, "alie", lambda j: line, tries, largest_z(r + b, b) / of_sample)


@declares(omniscient=True)
def optimal_ipm(view: View, *, tries: int = 20) -> Mapping[int, Tensor]:
    """x_j − ε (μ − x_j) to receiver j, ε as bad as it gets (inner product or FOE, optimised).

    As byzfl's Optimal_InnerProductManipulation, with the models' differences from the receiver's in
    the place of gradients.  Where its rule cannot be tried out: ε = 0.1.
    """
    mean, benign = mean_of_benign(view), benign_of(view)
    return _lies(view, "ipm", lambda j: (benign[j], benign[j] - mean), tries, 0.1)


@declares(omniscient=True)
def optimal_dissensus(view: View, *, tries: int = 20) -> Mapping[int, Tensor]:
    """x_j − ε Σ_k W_jk (x_k − x_j) to receiver j, ε as bad as it gets; k runs over the benign.

    `dissensus`, in the strength that Gaucher et al. give it (arXiv 2410.10418).  Where the rule
    cannot be tried out: ε = 1 / the weight of j's Byzantine neighbours, as `dissensus`.
    """
    benign = benign_of(view)

    def line(j: int) -> tuple[Tensor, Tensor]:
        x, away = benign[j], benign[j].new_zeros(len(benign[j]))
        byzantine = sum(w for k, w in view.weights(j).items() if k in view.colluders)
        for k, weight in view.weights(j).items():
            if k in benign and k != j:
                away.sub_(benign[k] - x, alpha=weight / (byzantine or 1.0))
        return x, away

    return _lies(view, "dissensus", line, tries, 1.0)


@declares(omniscient=True)
def spectral(view: View, *, factor: float = 0.0, tries: int = 20) -> Mapping[int, Tensor]:
    """x_j + c v_j Σ_k v_k x_k to receiver j, along the Fiedler vector v of the benign graph.

    v is the eigenvector of the second smallest eigenvalue of the Laplacian, with weights W: it has
    one sign in each of the two parts that hang together least, so the lies pull these apart
    ("spectral heterogeneity": Gaucher, Dieuleveut and Hendrikx 2025, arXiv 2410.10418).
    c = `factor`; 0: as bad as it gets with the receiver's rule, or 1 where that cannot be tried
    out.  (Their search maximises the length of what the receiver ends with: attacks/
    identical_sparse.py subtracts the target without keeping the result.  Here, the distance.)
    """
    not_negative("factor", factor)
    benign = benign_of(view)
    v = dict(zip(benign, _fiedler(view), strict=True))
    models = crowd_of(view).stack(benign)
    along = models.new_tensor(list(v.values())) @ models
    fixed = factor or 1.0
    return _lies(
        view, "spectral", lambda j: (benign[j], v[j] * along), 0 if factor else tries, fixed
    )


def _lies(view: View, name: str, line: Line, tries: int, fixed: float) -> Mapping[int, Tensor]:
    """What each receiver is told; other Byzantine nodes get the honest model.  tries = 0: fixed."""
    at_least("tries", tries, 0)
    lies = {}
    for j in view.receivers:
        if j not in benign_of(view):
            lies[j] = view.honest
            continue
        point, direction = line(j)
        lies[j] = point + _length(view, name, j, point, direction, tries, fixed) * direction
    return lies


def _length(
    view: View, name: str, j: int, point: Tensor, direction: Tensor, tries: int, fixed: float
) -> float:
    """How far along the line to go; colluders that see the same need not seek it again."""
    if not tries:
        return fixed
    benign, weights = benign_of(view), view.weights(j)
    seen, known = list(benign.values()), view.shared.setdefault("lengths", {})
    before = known.get((name, j))
    if before and before[0] == view.round and all(map(operator.is_, before[1], seen)):
        return float(before[2])
    friends = [k for k in weights if k in benign and k != j]
    colluders = [k for k in weights if k in view.colluders]
    models = [benign[j], point, direction, *(benign[k] for k in friends)]
    own, begin, along, *others = view.shadows(models)
    heard, target = dict(zip(friends, others, strict=True)), own.clone()
    for k, x in heard.items():
        target.add_(x - own, alpha=weights[k])

    def harm(length: float) -> float | None:
        told = dict.fromkeys(colluders, begin + length * along)
        made = view.outcome(j, own, dict(sorted({**heard, **told}.items())))
        return None if made is None else float((made - target).norm())

    found = fixed if harm(0.0) is None else line_maximum(harm, tries)
    known[(name, j)] = view.round, seen, found
    return found


def line_maximum(value: Callable[[float], float | None], tries: int) -> float:
    """Where a function on the half-line is largest: in longer and longer steps, then shorter ones.

    As byzfl: from 0, first step 10, doubled while it helps, then 0.8 of it each time.
    """
    best, highest, step, helps = 0.0, value(0.0) or 0.0, 10.0, True
    for _ in range(tries - 1):
        found = value(best + step) or 0.0
        better = found > highest
        if better:
            best, highest = best + step, found
        helps = helps and better
        step *= 2 if helps else 0.8
    return best


def _fiedler(view: View) -> list[float]:
    """Of the benign nodes, in the order in which they are shown."""
    nodes = tuple(benign_of(view))
    known = view.shared.get("fiedler")
    if known is None or known[0] != nodes:
        place = {node: i for i, node in enumerate(nodes)}
        adjacency = np.zeros((len(nodes), len(nodes)))
        for i, node in enumerate(nodes):
            for k, weight in view.weights(node).items():
                if k in place and k != node:
                    adjacency[i, place[k]] = weight
        adjacency = (adjacency + adjacency.T) / 2
        laplacian = np.diag(adjacency.sum(1)) - adjacency
        vectors = np.linalg.eigh(laplacian).eigenvectors
        known = view.shared["fiedler"] = nodes, vectors[:, min(1, len(nodes) - 1)].tolist()
    found: list[float] = known[1]
    return found
