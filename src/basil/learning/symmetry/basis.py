"""Low-rank pairs in one basis: B A is written as it is nearest to x⁰.

All in sums and products of a fixed number: a CUDA graph may hold it, and nothing can fail to
converge on what a Byzantine node sends.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from basil.learning.symmetry.parts import SLACK, Pair, Part

ITERATIONS = 32


class Bases:
    """Pairs of one shape that have nothing in common, side by side; x⁰ says which basis it is."""

    def __init__(self, pairs: Sequence[Pair], initial: Tensor) -> None:
        # Where in a vector they lie: [pair, r, fan-in], [pair, fan-out, r] and [pair, r, fan-in].
        at = _positions(initial)
        self._makes = torch.stack([pair.matrix(at) for pair in pairs])
        reads, meets = (zip(*kind, strict=True) for kind in zip(*map(_others, pairs), strict=True))
        self._reads = [torch.stack([part.of(at)[..., 0] for part in same]) for same in reads]
        self._meets = [torch.stack([part.of(at)[0] for part in same]) for same in meets]
        self.frames: Tensor = initial[self._makes].double()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bases) and torch.equal(self.frames, other.frames)

    def __hash__(self) -> int:
        return hash(self.frames.shape)

    def straighten(self, vector: Tensor) -> None:
        """In place: the rows A' of A's space with A'A'ᵀ = δI that are nearest to x⁰'s rows F.

        With an orthonormal basis Q of A's rows A' = √δ X Q, where X is the orthogonal factor of
        F Qᵀ, and δ = ‖F‖² / r.  Then A = R⁻¹ A' with R⁻¹ = A A'ᵀ / δ.  Factors within `SLACK` of
        the identity are left out.
        """
        rows = vector[self._makes].double()
        size = self.frames.square().sum((1, 2), keepdim=True) / rows.shape[1]
        basis = orthonormal(rows)
        straight = size.sqrt() * orthogonal_factor(self.frames @ basis.mT) @ basis
        inverse = rows @ straight.mT / size
        eye = torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
        near = (inverse - eye).abs().amax((1, 2), keepdim=True) < SLACK
        inverse = torch.where(near, eye, inverse)
        _put(vector, self._makes, torch.where(near, rows, straight))
        for places in self._reads:
            _put(vector, places, vector[places].double() @ inverse)
        for places in self._meets:
            _put(vector, places, inverse.mT @ vector[places].double())


def bases(pairs: Sequence[Pair], initial: Tensor) -> list[Bases]:
    """All pairs, side by side where one shape comes many times, and otherwise one by one."""
    parts = [part for pair in pairs for part in (*pair.makes, *pair.reads, *pair.meets)]
    used = [part.of(_positions(initial)).flatten() for part in parts]
    if not used or torch.cat(used).bincount().max() > 1:  # one changes what another is measured by
        return [Bases([pair], initial) for pair in pairs]
    alike: dict[object, list[Pair]] = {}
    for pair in pairs:
        kinds = (pair.makes, *_others(pair))
        shape = tuple(tuple((p.before, p.units, p.after) for p in kind) for kind in kinds)
        alike.setdefault(shape, []).append(pair)
    return [Bases(some, initial) for some in alike.values()]


def orthonormal(rows: Tensor) -> Tensor:
    """An orthonormal basis of the rows of each matrix [n, r, m]; a row of zeros stays one.

    Gram and Schmidt's, each row twice: "twice is enough" (Giraud et al. 2005).
    """
    basis = torch.zeros_like(rows)
    for i in range(rows.shape[1]):
        row = rows[:, i : i + 1]
        for _ in range(2):
            row = row - (row @ basis.mT) @ basis
            row = row / row.norm(dim=2, keepdim=True).clamp(min=1e-300)
        basis[:, i : i + 1] = row
    return basis


def orthogonal_factor(matrix: Tensor) -> Tensor:
    """U Vᵀ of the singular value decomposition U Σ Vᵀ of each matrix [n, r, r].

    By Newton and Schulz's iteration X ← X (3 − XᵀX) / 2, from ‖X‖ ≤ 1 on: a singular value grows by
    half until it is near 1.  One below 10⁻⁵ of the largest does not get there in time, and what it
    belongs to is nearly lost: only a model whose rows are at right angles to x⁰'s has such a one.
    """
    eye = torch.eye(matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
    x = matrix / matrix.square().sum((1, 2), keepdim=True).sqrt().clamp(min=1e-300)
    for _ in range(ITERATIONS):
        x = x @ (1.5 * eye - 0.5 * x.mT @ x)
    return x


def _others(pair: Pair) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    return pair.reads, pair.meets


def _positions(vector: Tensor) -> Tensor:
    return torch.arange(len(vector), device=vector.device)


def _put(vector: Tensor, places: Tensor, values: Tensor) -> None:
    vector.scatter_(0, places.flatten(), values.flatten().to(vector.dtype))
