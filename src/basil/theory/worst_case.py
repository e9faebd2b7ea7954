"""A ring of quadratic losses with Byzantine nodes that know everything: is the bound near?

An independent check of `robustness`: the protocol itself, turn by turn, in plain Python.  Benign
nodes belong to g groups that take turns along the ring.  The loss of group a is

    f_a(x) = ½ Σ_i A_ai (x_i − c_ai)²,   c_a = s e_a,

with A = μ everywhere (a common curvature), or A_aa = μ and L elsewhere: flat where it differs from
the others.  s makes the largest ‖∇f_a(x*)‖ equal G.  A Byzantine node sends each receiver the worst
of the models that it will choose: on the border of its sublevel set, such that those who hear the
receiver next lose most.  For a common curvature that is the point opposite to the mean of their
minimisers; for others, the worst of the axes' ends and of that point.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from basil.errors import UserError
from basil.theory.robustness import Hearing, Losses, evenly_spread, hearings, ring_error

Vector = list[float]
_LAPS = 300
_SETTLED = 1e-7
_LOST = 1e12  # times G/μ: the nodes have been led away
_JUST = 1 - 1e-12  # of the way to the border: rounding must not decide


@dataclass(frozen=True)
class Quadratic:
    """f(x) = ½ Σ A_i (x_i − c_i)²."""

    curvature: Vector
    centre: Vector

    def __call__(self, x: Vector) -> float:
        each = zip(self.curvature, x, self.centre, strict=True)
        return sum(a * (y - c) ** 2 for a, y, c in each) / 2

    def trained(self, x: Vector, rate: float, steps: int) -> Vector:
        """After so many gradient steps."""
        each = zip(self.curvature, x, self.centre, strict=True)
        return [c + (1 - rate * a) ** steps * (y - c) for a, y, c in each]

    def border(self, direction: Vector, loss: float) -> Vector:
        """The point in this direction from the minimiser that has this loss."""
        steep = sum(a * w * w for a, w in zip(self.curvature, direction, strict=True))
        length = math.sqrt(2 * loss / steep)
        return [c + length * w for c, w in zip(self.centre, direction, strict=True)]


class Row(NamedTuple):
    """One number of Byzantine nodes."""

    byzantine: int
    attacked: int
    """Benign nodes that hear a Byzantine one."""
    benign: int
    measured: float
    bound: float

    @property
    def ratio(self) -> float:
        """How many times the measured error the bound is; 1 where both are 0 or infinite."""
        return 1.0 if self.bound == self.measured else self.bound / (self.measured or math.ulp(0))


def table(nodes: int, connectivity: int, losses: Losses) -> Iterator[Row]:
    """A row for each b from 0 to the breakdown point, which is included."""
    for b in range(nodes):
        row = compared(nodes, b, connectivity, losses)
        yield row
        if row.bound == math.inf:
            return


def compared(nodes: int, byzantine: int, connectivity: int, losses: Losses) -> Row:
    """Measured error and `ring_error`, the Byzantine nodes evenly spread."""
    flags = evenly_spread(nodes, byzantine)
    heard = hearings(flags, connectivity)
    bound = ring_error(flags, connectivity, losses)
    cut = not all(hearing.benign for hearing in heard)
    measured = math.inf if cut else worst_case_error(flags, connectivity, losses)
    attacked = sum(hearing.byzantine for hearing in heard)
    return Row(byzantine, attacked, len(heard), measured, bound)


def worst_case_error(byzantine_flags: Sequence[bool], connectivity: int, losses: Losses) -> float:
    """The largest error that the worst Byzantine nodes reach, with 2 to S + 3 groups.

    It is the root mean square over the benign nodes of ‖x − x*‖, in the norm of `losses`, after a
    lap that changed nothing any more; infinite where the models are led away.
    """
    heard = hearings(byzantine_flags, connectivity)
    if len(heard) < 2 or not all(hearing.benign for hearing in heard):
        raise UserError("a worst case is measured on rings where each benign node hears another")
    return max(
        ring_of_groups(heard, connectivity, losses, groups)
        for groups in range(2, min(connectivity + 3, len(heard)) + 1)
    )


def ring_of_groups(
    heard: Sequence[Hearing], connectivity: int, losses: Losses, groups: int
) -> float:
    """The error with so many groups."""
    functions, optimum = grouped(heard, losses, groups)
    listeners: dict[int, list[Quadratic]] = {hearing.node: [] for hearing in heard}
    for hearing in heard:
        for other in hearing.benign:
            listeners[other].append(functions[hearing.node])
    models = {hearing.node: optimum for hearing in heard}
    error = 0.0
    for _ in range(_LAPS):
        before = error
        for node, benign, byzantine in heard:
            own = functions[node]
            candidates = [(own(models[other]), models[other]) for other in benign]
            if byzantine:
                most = (min(candidates)[0] + losses.slack) * _JUST
                sent = worst_model(own, most, listeners[node], losses)
                # The batch errs as much as it may, and to the advantage of the Byzantine model.
                candidates.append((own(sent) - losses.slack, sent))
            chosen = min(candidates)[1]
            models[node] = own.trained(chosen, losses.rate, losses.steps)
        error = _error(models, optimum, losses)
        if abs(error - before) <= _SETTLED * error:
            return error
        if error > _LOST * (losses.spread + losses.reach):
            return math.inf
    return error


def grouped(
    heard: Sequence[Hearing], losses: Losses, groups: int
) -> tuple[dict[int, Quadratic], Vector]:
    """The losses by node, with the largest ‖∇f_i(x*)‖ equal to G; and x*."""
    steep = losses.strong if losses.common_curvature else losses.smooth
    kinds = [[losses.strong if i == a else steep for i in range(groups)] for a in range(groups)]
    kind = {hearing.node: turn % groups for turn, hearing in enumerate(heard)}
    count = [sum(a == b for b in kind.values()) for a in range(groups)]
    total = [sum(n * A[i] for n, A in zip(count, kinds, strict=True)) for i in range(groups)]
    middle = [count[i] * kinds[i][i] / total[i] for i in range(groups)]
    largest = max(
        math.hypot(*(kinds[a][i] * (middle[i] - (i == a)) for i in range(groups)))
        for a in range(groups)
    )
    scale = losses.dissimilarity / largest
    functions = [
        Quadratic(kinds[a], [scale * (i == a) for i in range(groups)]) for a in range(groups)
    ]
    return {node: functions[a] for node, a in kind.items()}, [scale * m for m in middle]


def worst_model(
    own: Quadratic, loss: float, listeners: Sequence[Quadratic], losses: Losses
) -> Vector:
    """The model with this loss for its receiver, that is worst for those who hear it next."""
    size = len(own.centre)
    mean = [sum(each.centre[i] for each in listeners) / len(listeners) for i in range(size)]
    away = [c - m for c, m in zip(own.centre, mean, strict=True)]
    directions = [away] if any(away) else [[float(i == 0) for i in range(size)]]
    if not losses.common_curvature:
        directions += [
            [sign * (i == j) for i in range(size)] for j in range(size) for sign in (1.0, -1.0)
        ]

    def harm(model: Vector) -> float:
        sent = own.trained(model, losses.rate, losses.steps)
        return sum(listener(sent) for listener in listeners)

    return max((own.border(direction, loss) for direction in directions), key=harm)


def _error(models: dict[int, Vector], optimum: Vector, losses: Losses) -> float:
    weight = losses.strong if losses.common_curvature else 1.0
    squares = [sum((y - o) ** 2 for y, o in zip(x, optimum, strict=True)) for x in models.values()]
    return math.sqrt(weight * sum(squares) / len(squares))
