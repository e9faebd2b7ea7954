"""Attacks of the field that know what every benign node sent last.

They were written against servers that average gradients.  Here nodes send models, so where the
publications say "gradient of worker i" it is the model that benign node i sent last.
"""

import math
from collections.abc import Mapping
from statistics import NormalDist

from torch import Tensor

from basil.attack.check import not_negative, positive, share_of
from basil.attack.distance_cache import DistanceCache
from basil.attack.view import View, declares
from basil.errors import UserError


@declares(omniscient=True)
def alie(view: View, *, z: float = 0.0) -> Tensor:
    """μ − z σ, coordinate by coordinate: a little is enough (z = 0: z_max of N and b).

    μ and σ are mean and standard deviation of the benign models.  z_max is the largest shift for
    which enough benign values lie farther out to make the lie look like one of a majority
    (Baruch, Baruch and Goldberg, NeurIPS 2019, Algorithm 3): `largest_z`.
    """
    not_negative("z", z)
    models = crowd_of(view).stack(benign_of(view))
    z = z or largest_z(len(models) + len(view.colluders), len(view.colluders))
    mean = models.mean(0)
    return mean - z * deviation(models, mean)


def largest_z(n: int, m: int) -> float:
    """max z with Φ(z) < (n − m − s) / (n − m), where s = ⌊n/2 + 1⌋ − m supporters are needed.

    Where the Byzantine are a majority they need nobody (s ≤ 0, z unbounded); s is then taken as 1.
    And where more than half of the benign would have to support them, z_max would be negative: 0.
    """
    supporters = max(1, n // 2 + 1 - m)
    share = (n - m - supporters) / (n - m)
    return max(0.0, NormalDist().inv_cdf(share)) if share > 0 else 0.0


@declares(omniscient=True, trains=True)
def ipm(view: View, *, epsilon: float = 0.1) -> Tensor:
    """x̄ − ε (μ − x̄): the mean benign update, reversed (inner-product manipulation).

    Xie, Koyejo and Gupta (UAI 2020) send −ε times the mean of the benign gradients.  For models: x̄
    is the one that this node went on from, and μ − x̄, with the mean μ of the benign models, is the
    mean benign update as seen from there.
    """
    positive("epsilon", epsilon)
    return view.chosen - epsilon * (mean_of_benign(view) - view.chosen)


@declares(omniscient=True, trains=True)
def rop(
    view: View,
    *,
    z: float = 1.0,
    relocation: float = 1.0,
    memory: float = 0.9,
    angle: float = 270.0,
) -> Tensor:
    """x̄ + π m + (1 − π) u + z ‖u‖ p: beside last round's mean update, at an angle to where all go.

    u = μ − x̄ is the mean benign update, m that of the round before, π = `relocation`.  p is the
    vector of ones made orthogonal to λ m + (1 − λ) u (λ = `memory`), then turned by `angle` degrees
    from that: 180 is against it, 90 and 270 are across it.  Relocated orthogonal perturbation
    (Özfatura, Özfatura, Küpçü and Gündüz, arXiv 2208.09894), which centred clipping does not see.
    Defaults of their code (CRYPTO-KU/FL-Byzantine-Library, Attacks/rop.py, config/attack.py), but
    for z: there it is a length in gradients, here in lengths of the mean update.
    """
    positive("z", z)
    share_of("memory", memory)
    not_negative("relocation", relocation)
    update = mean_of_benign(view) - view.chosen
    last = view.state.get("update", update)
    view.state["update"] = update
    ahead = memory * last + (1 - memory) * update
    ahead = (ahead / ahead.norm()).nan_to_num(0.0)
    across = 1 - ahead.sum() * ahead
    across = (across / across.norm()).nan_to_num(0.0)
    turned = math.sin(math.radians(angle)) * across + math.cos(math.radians(angle)) * ahead
    place = view.chosen + relocation * last + (1 - relocation) * update
    lie: Tensor = place + z * update.norm() * turned
    return lie


@declares(omniscient=True)
def mimic(view: View, *, target: int = -1) -> Tensor:
    """All repeat what one benign node sent last (target = −1: one drawn for the run).

    It starves the others of weight, and cannot be told from honesty (Karimireddy, He and Jaggi,
    ICLR 2022).  They choose the node that stands out along the direction of largest variance,
    which takes a warm-up; here it is drawn, the same for all of them, and can be named.
    """
    benign = benign_of(view)
    if target == -1:
        target = sorted(benign)[int(view.common.integers(len(benign)))]
    elif target not in benign:
        raise UserError(
            f"attack.target = {target}: it must be a benign node: {', '.join(map(str, benign))};"
            " or -1 to have one drawn"
        )
    return benign[target].clone()


@declares(omniscient=True)
def dissensus(view: View, *, epsilon: float = 1.0) -> Mapping[int, Tensor]:
    """x_j − ε Σ_k W_jk (x_k − x_j) / Σ_l W_jl to receiver j: away from those it should agree with.

    k runs over the benign, l over the Byzantine ones of j's neighbours, W over their mixing weights
    (He, Karimireddy and Jaggi 2022, "Byzantine-robust decentralized learning via ClippedGossip").
    With ε = 1 the lies cancel in an average what j's benign neighbours would have moved it.  On a
    ring, j's neighbours are the predecessors whose models it stores, with equal weights.  Other
    Byzantine nodes, which nobody needs to deceive, get the honest model.
    """
    positive("epsilon", epsilon)
    benign = benign_of(view)
    lies = {}
    for j in view.receivers:
        if j not in benign:
            lies[j] = view.honest
            continue
        weights = view.weights(j)
        friends = [k for k in weights if k in benign and k != j]
        byzantine = sum(weight for k, weight in weights.items() if k in view.colluders)
        x = benign[j].clone()
        for k in friends:
            x.sub_(benign[k] - benign[j], alpha=epsilon * weights[k] / (byzantine or 1.0))
        lies[j] = x
    return lies


def deviation(models: Tensor, mean: Tensor) -> Tensor:
    """σ of each coordinate.  (torch.std goes down the columns: ten times slower than the rows.)"""
    return (models - mean).square_().mean(0).sqrt_()


def mean_of_benign(view: View) -> Tensor:
    """μ, the mean of what all benign nodes sent last."""
    return crowd_of(view).stack(benign_of(view)).mean(0)


def benign_of(view: View) -> Mapping[int, Tensor]:
    assert view.benign is not None
    return view.benign


def crowd_of(view: View) -> DistanceCache:
    crowd: DistanceCache = view.shared.setdefault("crowd", DistanceCache())
    return crowd
