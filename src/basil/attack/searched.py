"""Attacks that try out on each receiver's rule how far to go.

A lie to receiver j is a point and a direction; its length is sought by a line search, so that what
j would make of its neighbours' models ends as far as possible from what the benign ones alone
would make of them.  All of j's Byzantine neighbours tell it the same.

Rules that ask for losses cannot be tried out, nor can a ring's: there a fixed length is taken.
"""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from basil.attack.check import at_least, not_negative
from basil.attack.omniscient import benign_of, crowd_of, deviation, largest_z, mean_of_benign
from basil.attack.view import View, declares

Models: TypeAlias = Mapping[Any, Tensor]
"""What each benign node sent, and what was made of that, by names: whole, or in their shadows."""
Line: TypeAlias = Callable[[int, Models], tuple[Tensor, Tensor]]
"""To a receiver a point and a direction: sums of these models, whole or not."""


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

    def line(j: int, seen: Models) -> tuple[Tensor, Tensor]:
        return seen["mean"], -of_sample * seen["deviation"]

    z = largest_z(r + b, b) / of_sample
    return _lies(view, "alie", line, tries, z, mean=mean, deviation=deviation(models, mean))


@declares(omniscient=True)
def optimal_ipm(view: View, *, tries: int = 20) -> Mapping[int, Tensor]:
    """x_j − ε (μ − x_j) to receiver j, ε as bad as it gets (inner product or FOE, optimised).

    As byzfl's Optimal_InnerProductManipulation, with the models' differences from the receiver's in
    the place of gradients.  Where its rule cannot be tried out: ε = 0.1.
    """

    def line(j: int, seen: Models) -> tuple[Tensor, Tensor]:
        return seen[j], seen[j] - seen["mean"]

    return _lies(view, "ipm", line, tries, 0.1, mean=mean_of_benign(view))


@declares(omniscient=True)
def optimal_dissensus(view: View, *, tries: int = 20) -> Mapping[int, Tensor]:
    """x_j − ε Σ_k W_jk (x_k − x_j) to receiver j, ε as bad as it gets; k runs over the benign.

    `dissensus`, in the strength that Gaucher et al. give it (arXiv 2410.10418).  Where the rule
    cannot be tried out: ε = 1 / the weight of j's Byzantine neighbours, as `dissensus`.
    """

    def line(j: int, seen: Models) -> tuple[Tensor, Tensor]:
        x, away = seen[j], seen[j].new_zeros(len(seen[j]))
        byzantine = sum(w for k, w in view.weights(j).items() if k in view.colluders)
        for k, weight in view.weights(j).items():
            if k in seen and k != j:
                away.sub_(seen[k] - x, alpha=weight / (byzantine or 1.0))
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

    def line(j: int, seen: Models) -> tuple[Tensor, Tensor]:
        return seen[j], v[j] * seen["along"]

    return _lies(view, "spectral", line, 0 if factor else tries, factor or 1.0, along=along)


def _lies(
    view: View, name: str, line: Line, tries: int, fixed: float, **more: Tensor
) -> Mapping[int, Tensor]:
    """What each receiver is told; other Byzantine nodes get the honest model.  tries = 0: fixed.

    more: what else the lines are made of.
    """
    at_least("tries", tries, 0)
    seen: Models = {**benign_of(view), **more}
    search = _search(view, name) if tries else None
    lies = {}
    for j in view.receivers:
        if j not in seen:
            lies[j] = view.honest
            continue
        point, direction = line(j, seen)
        length = search.length(view, line, j, seen, tries, fixed) if search else fixed
        lies[j] = point + length * direction
    return lies


@dataclass
class Search:
    """What one round's lies are sought with, while no benign node has sent another model."""

    name: str
    round: int
    benign: list[Tensor]
    shadows: Models | None = None
    lengths: dict[int, float] = field(default_factory=dict)

    def length(
        self, view: View, line: Line, j: int, seen: Models, tries: int, fixed: float
    ) -> float:
        """How far along its line to go with receiver j."""
        if j in self.lengths:
            return self.lengths[j]
        if self.shadows is None:
            self.shadows = dict(zip(seen, view.shadows(seen.values()), strict=True))
        shown, weights = self.shadows, view.weights(j)
        own, (begin, along) = shown[j], line(j, shown)
        colluders = [k for k in weights if k in view.colluders]
        heard = {k: shown[k] for k in weights if k in shown and k != j}
        target = own.clone()
        for k, x in heard.items():
            target.add_(x - own, alpha=weights[k])

        def harm(length: float) -> float | None:
            told = dict.fromkeys(colluders, begin + length * along)
            made = view.outcome(j, own, dict(sorted({**heard, **told}.items())))
            return None if made is None else float((made - target).norm())

        found = fixed if harm(0.0) is None else line_maximum(harm, tries)
        self.lengths[j] = found
        return found


def _search(view: View, name: str) -> Search:
    """The same for all colluders that see the same."""
    known: Search | None = view.shared.get("search")
    benign = list(benign_of(view).values())
    mine = known and (known.name, known.round) == (name, view.round)
    if known and mine and all(map(operator.is_, known.benign, benign)):
        return known
    made = view.shared["search"] = Search(name, view.round, benign)
    return made


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
