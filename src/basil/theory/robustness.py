"""What b Byzantine nodes can cost a ring whose benign nodes have unlike data: bounds on the error.

A benign node hears S predecessors, goes on from a model whose loss on its own data is at most ε
above the lowest it was sent by a benign one, and takes gradient steps.  The Byzantine nodes know
everything and send each receiver what they like.  docs/research/bound.md has statements and proofs.

Let x* minimise the mean f of the benign losses, D = ‖x − x*‖ and

    q  what the steps of a turn leave of a distance to the node's own minimiser,
    k  how much further away a model may be that is no worse for the node (e: what ε adds),
    ρ  ≥ ‖own minimiser − x*‖, from the dissimilarity G, and ρ' what a turn's steps pull off x*.

A turn with a Byzantine node among the S predecessors ends with D ≤ q √(k²(D_j + ρ)² + e²) + ρ for
*every* benign predecessor j; one without ends with D ≤ q max_j D_j + ρ'.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from basil.errors import UserError
from basil.theory import _checks

_FAR = 1e9  # where the recursion starts, in units of ρ and e
_LAPS = 20_000
_SETTLED = 1e-9


@dataclass(frozen=True)
class Losses:
    """The benign nodes' losses, and what a turn does with them."""

    dissimilarity: float
    """G: (1/h) Σ ‖∇f_i(x*)‖² ≤ G² over the h benign nodes; `ring_error` wants every term ≤ G²."""
    rate: float
    """η, the step size."""
    strong: float = 1.0
    """μ: every f_i is μ-strongly convex."""
    smooth: float = 1.0
    """L: every f_i is L-smooth."""
    steps: int = 1
    """Gradient steps of a turn, on all of the node's data."""
    slack: float = 0.0
    """ε: how much worse than the best benign candidate the chosen model may be (`loss_slack`)."""
    common_curvature: bool = False
    """f_i = ½ (x − c_i)ᵀA(x − c_i) with one A for all.  Distances are then those of the norm of A,
    in which f(x) − f(x*) = D²/2; otherwise they are Euclidean."""

    def __post_init__(self) -> None:
        _checks.at_least("dissimilarity", self.dissimilarity, 0)
        _checks.at_least("slack", self.slack, 0)
        _checks.at_least("steps", self.steps, 1)
        if not 0 < self.strong <= self.smooth < math.inf:
            raise UserError(
                f"strong = {self.strong}, smooth = {self.smooth}: "
                "convexity and smoothness are numbers with 0 < strong ≤ smooth"
            )
        if not 0 < self.rate < 2 / self.smooth:
            raise UserError(
                f"rate = {self.rate}: gradient steps converge for more than 0 and less than "
                f"2 / smooth = {2 / self.smooth:g}"
            )

    @property
    def one_step(self) -> float:
        """max(|1 − ημ|, |1 − ηL|): what one step leaves of a distance between two models."""
        return max(abs(1 - self.rate * self.strong), abs(1 - self.rate * self.smooth))

    @property
    def left(self) -> float:
        """q: `one_step` to the power of the steps."""
        return self.one_step**self.steps

    @property
    def stretch(self) -> float:
        """k: 1 with a common curvature, where what is no worse is no further away; else √(L/μ)."""
        return 1.0 if self.common_curvature else math.sqrt(self.smooth / self.strong)

    @property
    def reach(self) -> float:
        """e = √(2ε/μ), in the norm of A √(2ε)."""
        return math.sqrt(2 * self.slack / (1 if self.common_curvature else self.strong))

    @property
    def spread(self) -> float:
        """ρ = G/μ, in the norm of A G/√μ."""
        return self.dissimilarity / (
            math.sqrt(self.strong) if self.common_curvature else self.strong
        )

    @property
    def drift(self) -> float:
        """ρ' = ηG (1 − q)/(1 − q₁), with q₁ of one step; in the norm of A √L times that."""
        drift = self.rate * self.dissimilarity * (1 - self.left) / (1 - self.one_step)
        return drift * math.sqrt(self.smooth) if self.common_curvature else drift

    def gap(self, error: float) -> float:
        """What the error D says of f(x) − f(x*): D²/2 in the norm of A, else at most L D²/2."""
        return (1 if self.common_curvature else self.smooth) * error**2 / 2


class Hearing(NamedTuple):
    """Whom a benign node hears."""

    node: int
    benign: list[int]
    byzantine: bool
    """Whether any of the S predecessors is Byzantine."""


def hearings(byzantine_flags: Sequence[bool], connectivity: int) -> list[Hearing]:
    """Whom each benign node hears, in the order of turns; nearest predecessor first."""
    nodes = len(byzantine_flags)
    _checks.ring(nodes, sum(byzantine_flags), connectivity)
    found = []
    for node in range(nodes):
        if not byzantine_flags[node]:
            before = [(node - back) % nodes for back in range(1, connectivity + 1)]
            benign = [other for other in before if not byzantine_flags[other]]
            found.append(Hearing(node, benign, len(benign) < connectivity))
    return found


def evenly_spread(nodes: int, byzantine: int) -> list[bool]:
    """A ring with its Byzantine nodes as far apart as can be: so they reach the most others."""
    _checks.population(nodes, byzantine)
    return [i * byzantine // nodes < (i + 1) * byzantine // nodes for i in range(nodes)]


def worst_error(losses: Losses) -> float:
    """Theorem 1: the root mean square of D over a lap, in the long run, wherever the Byzantine
    nodes are and however many, as long as each node hears a benign one (S > b is enough).

    R + ρ with R = q √(k²(R + 2ρ)² + e²), which for ε = 0 is ρ (1 + qk)/(1 − qk).  Infinite unless
    qk < 1.
    """
    p = losses.left * losses.stretch
    if p >= 1:
        return math.inf
    rho, pushed = losses.spread, losses.left * losses.reach
    root = math.sqrt((2 * p * p * rho) ** 2 + (1 - p * p) * ((2 * p * rho) ** 2 + pushed**2))
    return (2 * p * p * rho + root) / (1 - p * p) + rho


def ring_error(byzantine_flags: Sequence[bool], connectivity: int, losses: Losses) -> float:
    """Theorem 2: the same for this very ring, where nodes that hear no Byzantine one are safe.

    The one solution of the recursion at the head of this file, by iteration from far away.  G
    bounds each ‖∇f_i(x*)‖ here, not only their mean square.  Infinite where some node hears no
    benign one, and where a lap pushes further than it pulls back.
    """
    heard = hearings(byzantine_flags, connectivity)
    if not all(hearing.benign for hearing in heard):
        return math.inf
    unit = losses.spread + losses.reach
    if not unit:  # all minimisers are x*: models come back to it, or are led away from it
        unlike = ring_error(byzantine_flags, connectivity, replace(losses, dissimilarity=1.0))
        return math.inf if math.isinf(unlike) else 0.0
    error = [_FAR * unit] * len(byzantine_flags)
    for _ in range(_LAPS):
        change = 0.0
        for node, now in _lap(heard, error, losses):
            change = max(change, abs(now - error[node]) / (now or 1))
            error[node] = now
        if change < _SETTLED:
            return math.sqrt(sum(error[hearing.node] ** 2 for hearing in heard) / len(heard))
        if max(error[hearing.node] for hearing in heard) > _FAR**2 * unit:
            break
    return math.inf


def _lap(
    heard: Sequence[Hearing], error: Sequence[float], losses: Losses
) -> Iterator[tuple[int, float]]:
    q, k, rho = losses.left, losses.stretch, losses.spread
    for node, benign, byzantine in heard:
        nearest = min(error[other] for other in benign)
        now = q * math.hypot(k * (nearest + rho), losses.reach) + rho
        if not byzantine:
            now = min(now, q * max(error[other] for other in benign) + losses.drift)
        yield node, now


def breakdown(nodes: int, connectivity: int, losses: Losses) -> int:
    """The smallest b for which `ring_error` has no bound, the Byzantine nodes evenly spread."""
    return next(
        b
        for b in range(nodes)
        if math.isinf(ring_error(evenly_spread(nodes, b), connectivity, losses))
    )


def equal_data_gap(losses: Losses) -> float:
    """Theorem 3: f(x) − f(x*) in the long run, if all benign nodes have the same loss.

    ε p/(1 − p) with p = (1 − ημ)^steps, for η ≤ 1/L, whatever b is: Byzantine nodes gain nothing
    but ε a turn.  Of f it needs smoothness and ‖∇f‖² ≥ 2μ (f − f*) (Polyak–Łojasiewicz) only.
    """
    _rate_for_descent(losses.rate, losses.smooth)
    p = (1 - losses.rate * losses.strong) ** losses.steps
    return losses.slack * p / (1 - p)


def gradient_bound(
    turns: int, rate: float, smooth: float, start_gap: float, slack: float = 0.0, unlike: float = 0
) -> float:
    """Theorem 4, smooth losses, convex or not: the mean of ‖∇f_i(z)‖² over the benign turns, z the
    model that the node went on from.

    2 F/(ηT) + 2(ε + Δ)/η for T turns of one step, η ≤ 1/L, if no two benign losses differ by more
    than Δ (`unlike`) once a constant is taken off each; F = f_i(x⁰) − inf f_j (`start_gap`).
    """
    _checks.at_least("turns", turns, 1)
    _positive("smooth", smooth)
    for name, value in (("start_gap", start_gap), ("slack", slack), ("unlike", unlike)):
        _checks.at_least(name, value, 0)
    _rate_for_descent(rate, smooth)
    return 2 * (start_gap / turns + slack + unlike) / rate


def loss_slack(sigma: float, samples: int, connectivity: int, failure: float) -> float:
    """ε = 2σ √(2 ln(2S/δ)/m): with probability 1 − δ the model with the lowest mean loss on m fresh
    samples is at most ε worse than the best of S (Hoeffding for σ-sub-Gaussian losses, and a union
    over the S candidates, which are fixed before the samples are drawn).
    """
    _checks.at_least("sigma", sigma, 0)
    _checks.at_least("samples", samples, 1)
    _checks.at_least("connectivity", connectivity, 1)
    if not 0 < failure < 1:
        raise UserError(f"failure = {failure}: it must lie between 0 and 1, both excluded")
    return 2 * sigma * math.sqrt(2 * math.log(2 * connectivity / failure) / samples)


def server_breakdown(growth: float) -> float:
    """1/(2 + B²): with this share of Byzantine nodes no algorithm has a bounded error (Allouah et
    al., "Robust Distributed Learning: Tight Error Bounds and Breakdown Point under Data
    Heterogeneity", NeurIPS 2023, Theorem 1), if (1/h) Σ‖∇f_i − ∇f‖² ≤ G² + B²‖∇f‖² is all that is
    known and one model is to serve all.
    """
    _checks.at_least("growth", growth, 0)
    return 1 / (2 + growth**2)


def server_gap(
    nodes: int, byzantine: int, dissimilarity: float, strong: float = 1.0, growth: float = 0.0
) -> float:
    """The error f(x) − f(x*) below which no algorithm gets (the same theorem):

    G²/8μ · b/(N − (2 + B²) b), infinite from the breakdown point on.
    """
    _checks.population(nodes, byzantine)
    _checks.at_least("dissimilarity", dissimilarity, 0)
    _positive("strong", strong)
    if byzantine >= server_breakdown(growth) * nodes:
        return math.inf
    rest = nodes - (2 + growth**2) * byzantine
    return dissimilarity**2 * byzantine / (8 * strong * rest)


def own_models_error(nodes: int, byzantine: int, losses: Losses) -> float:
    """Proposition 5: an error that no algorithm stays below whose benign nodes have models of their
    own, as on a ring: ρ √(1 − p/h) · p/max(p, h − p), h = N − b, for every p ≤ min(b, h).

    It compares with `ring_error`: the root mean square over the benign nodes, every ‖∇f_i(x*)‖ ≤ G.
    A node that trains alone ends within ρ.
    """
    _checks.population(nodes, byzantine)
    h = nodes - byzantine
    halves = (min(byzantine, half) for half in (h // 2, (h + 1) // 2))  # one of them is the best p
    return losses.spread * max(math.sqrt(1 - p / h) * p / max(p, h - p) for p in halves)


def _positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise UserError(f"{name} = {value}: it must be a finite number, more than 0")


def _rate_for_descent(rate: float, smooth: float) -> None:
    if not 0 < rate * smooth <= 1:
        raise UserError(
            f"rate = {rate}: a step is sure to descend for more than 0 and at most "
            f"1 / smooth = {1 / smooth:g}"
        )
