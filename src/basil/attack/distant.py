"""Min-Max and Min-Sum (Shejwalkar and Houmansadr, NDSS 2021): as far as distances allow.

μ + γ p with the largest γ at which the lie is no more of an outlier than a benign model is.  The
authors search γ by halving; for distances there is a formula.
"""

from torch import Tensor

from basil.attack.check import one_of
from basil.attack.omniscient import benign_of, crowd_of, deviation
from basil.attack.view import View, declares

DIRECTIONS = ("std", "unit", "sign")


@declares(omniscient=True, trains=True)
def min_max(view: View, *, direction: str = "std") -> Tensor:
    """μ + γ p, no farther from any benign model than two of them are from each other.

    p is −σ ("std"), −u/‖u‖ ("unit") or −sign(u) ("sign"), where u = μ − x̄ is the mean benign update
    as seen from the model that this node went on from (in the publication, the mean gradient).
    """
    mean, p, squares = _setting(view, direction)
    models, r = crowd_of(view).models, len(squares)
    to_mean = squares.mean(1) - squares.sum() / (2 * r * r)
    # ‖μ + γ p − x_i‖² = γ² q + 2 γ u_i + r_i² ≤ max d²: the positive root, smallest over i.
    q = p.double().square().sum()
    u = (p @ mean - models @ p).double()
    room = (squares.max() - to_mean).clamp(min=0)
    length = ((u.square() + q * room).sqrt() - u).min() / q
    return _shifted(mean, p, length)


@declares(omniscient=True, trains=True)
def min_sum(view: View, *, direction: str = "std") -> Tensor:
    """μ + γ p, with squared distances to the benign that add to no more than any benign model's.

    p as of `min-max`.
    """
    mean, p, squares = _setting(view, direction)
    r = len(squares)
    # Σ_i ‖μ + γ p − x_i‖² = r γ² q + Σ_i r_i², since the x_i − μ add to zero.
    room = squares.sum(1).max() - squares.sum() / (2 * r)
    length = (room.clamp(min=0) / (r * p.double().square().sum())).sqrt()
    return _shifted(mean, p, length)


def _setting(view: View, direction: str) -> tuple[Tensor, Tensor, Tensor]:
    """μ, p, and the squared distances between benign models."""
    one_of("direction", direction, DIRECTIONS)
    squares = crowd_of(view).squared_distances(benign_of(view))
    mean = crowd_of(view).models.mean(0)
    if direction == "std":
        return mean, -deviation(crowd_of(view).models, mean), squares
    update = mean - view.chosen
    p = -update.sign() if direction == "sign" else -update / update.norm()
    return mean, p, squares


def _shifted(mean: Tensor, p: Tensor, length: Tensor) -> Tensor:
    """Where there is no direction (0 / 0), the mean."""
    return mean + p.nan_to_num(0.0) * length.nan_to_num(0.0, posinf=0.0).float()
