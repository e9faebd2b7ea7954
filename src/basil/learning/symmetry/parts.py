"""The symmetries of a network: changes of its weights that change no output.

Three kinds are known here.

*Scale.*  What makes a hidden unit times a > 0, what reads it divided by a: positively homogeneous
functions (ReLU, pooling, a linear map) pass a factor on, and normalisation takes it out.
*Order.*  Hidden units, with all that makes and reads them, in another order.
*Basis.*  Between two linear maps, B A = (B R⁻¹)(R A) for every invertible R: low-rank pairs, and
the products q·k and v·o of attention.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from basil.learning.symmetry.arrays import Array, joined

SLACK = 1e-3  # factors nearer to 1 are left out


@dataclass(frozen=True)
class Part:
    """A piece of a model's vector as [before, units, after]: entries [:, u, :] belong to unit u.

    `width`, `skip`: where these units are some of more, how many there are and come before them.
    """

    start: int
    before: int
    units: int
    after: int
    width: int = 0
    skip: int = 0

    def of(self, vector: Array) -> Array:
        """A view."""
        width = self.width or self.units
        stop = self.start + self.before * width * self.after
        view = vector[self.start : stop].reshape(self.before, width, self.after)
        return view[:, self.skip : self.skip + self.units] if self.width else view

    def rows(self, vector: Array) -> Array:
        """[unit, entry]: what belongs to each unit."""
        view = self.of(vector)
        return view[0] if self.before == 1 else view.swapaxes(0, 1).reshape(self.units, -1)


@dataclass(frozen=True)
class Units:
    """Hidden units that can be scaled: f times `makes`, f² times `squares`, 1/f times `reads`.

    `gauges`: what their scale is measured by.  Weights that make them; of a normalisation, whose
    units have one weight each, the bias as well: a unit may live by it alone.
    `whole`: only all units together, by one factor.
    """

    name: str
    gauges: tuple[Part, ...]
    makes: tuple[Part, ...]
    squares: tuple[Part, ...] = ()  # running variances
    reads: tuple[Part, ...] = ()
    whole: bool = False

    @property
    def gauge(self) -> Part:
        """The weights among them."""
        return self.gauges[0]

    @property
    def size(self) -> int:
        return self.gauge.units

    def measured(self, vector: Array) -> Array:
        """[unit, entry]: what the gauges hold of each; of `whole` units, all weights as one row."""
        if self.whole:
            return self.gauge.rows(vector).reshape(1, -1)
        return joined([gauge.rows(vector) for gauge in self.gauges])

    def scale(self, vector: Array, factors: Array) -> None:
        """In place."""
        f = factors.reshape(1, -1, 1)
        for part in self.makes:
            view = part.of(vector)
            view *= f
        for part in self.squares:
            view = part.of(vector)
            view *= f * f
        self.read(vector, factors)

    def read(self, vector: Array, factors: Array) -> None:
        """In place: only what reads them, as if they had been scaled."""
        for part in self.reads:
            view = part.of(vector)
            view /= factors.reshape(1, -1, 1)

    def permute(self, vector: Tensor, order: Tensor) -> None:
        """In place: unit order[u] takes the place of unit u."""
        # (A filter for each channel both reads it and makes the next: it is moved once.)
        for part in dict.fromkeys((*self.makes, *self.squares, *self.reads)):
            view = part.of(vector)
            view.copy_(view[:, order])


@dataclass(frozen=True)
class Pair:
    """Two linear maps with nothing between them: R times `makes`, `reads` times R⁻¹.

    `meets`: what meets them in a product, as the keys of attention meet its queries: R⁻ᵀ times it.
    """

    name: str
    makes: tuple[Part, ...]  # [1, r, fan-in], and a bias [1, r, 1]
    reads: tuple[Part, ...] = ()  # [fan-out, r, 1]
    meets: tuple[Part, ...] = ()  # [1, r, fan-in]

    @property
    def size(self) -> int:
        return self.makes[0].units

    def matrix(self, vector: Tensor) -> Tensor:
        """[r, fan-in]: what makes the units, the bias as its last column."""
        return torch.cat([part.rows(vector) for part in self.makes], 1)

    def transform(self, vector: Tensor, basis: Tensor, inverse: Tensor) -> None:
        """In place, with R and R⁻¹."""
        rows = basis @ self.matrix(vector).to(basis.dtype)
        sizes = [part.after for part in self.makes]
        for part, new in zip(self.makes, rows.split(sizes, 1), strict=True):
            part.of(vector).copy_(new[None])
        for part in self.reads:
            view = part.of(vector)
            view.copy_((view.to(inverse.dtype)[..., 0] @ inverse)[..., None])
        for part in self.meets:
            view = part.of(vector)
            view.copy_((inverse.T @ view.to(inverse.dtype)[0])[None])


@dataclass(frozen=True)
class Symmetries:
    """Those of a network that were found, in the order in which data passes through them.

    `scaled` and `ordered` overlap: most units have both symmetries.  `unknown`: what the search did
    not understand; there may be more symmetries around it.
    """

    scaled: tuple[Units, ...] = ()
    ordered: tuple[Units, ...] = ()
    pairs: tuple[Pair, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def none(self) -> bool:
        return not (self.scaled or self.ordered or self.pairs)

    @property
    def warning(self) -> str | None:
        """A sentence, where not all is known."""
        if not self.unknown:
            return None
        known = "none" if self.none else "not all"
        return (
            f"of the symmetries of this network {known} are known ({', '.join(self.unknown)}): a"
            " Byzantine node may change its weights and no output, and only what is known is"
            " undone; with scheme.descent = true no step is taken that raises the loss"
        )
