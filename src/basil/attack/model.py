"""The paper's attacks on what a node sends, and plain faults: from a `View` to a vector.

Until its first round (`start` in the recipe) a Byzantine node follows the protocol.
"""

import torch
from torch import Tensor

from basil.attack.check import not_negative, one_of, positive, slot_of
from basil.attack.distance_cache import DistanceCache
from basil.attack.view import View, declares


@declares(blind=True)
def gaussian(view: View, *, std: float = 1.0) -> Tensor:
    """Every parameter drawn from N(0, std²) (§VI-A, Gaussian attack; std = 1)."""
    positive("std", std)
    device = view.honest.device
    return std * torch.randn(view.honest.shape, generator=view.generator, device=device)


@declares(trains=True)
def sign_flip(view: View) -> Tensor:
    """−x: the sign of every parameter of the honest update flipped (§VI-A, the naive one)."""
    return -view.honest


@declares(trains=True)
def layer_sign_flip(view: View) -> Tensor:
    """Each layer of the honest update is flipped with probability ½ (§VI-A, Random Sign Flip)."""
    model = view.honest.clone()
    for layer in view.layout.layers:
        if view.rng.random() < 0.5:
            model[layer] *= -1
    return model


@declares(omniscient=True, start=20)
def hidden(view: View, *, coordinate: int = -1) -> Tensor:
    """x̂ + γ e_c with the largest γ that distances cannot tell from an honest model.

    x̂ is the mean of the benign models; γ is the largest shift along coordinate c for which
    ‖x̂ + γ e_c − x_j‖ ≤ max_{i,j} ‖x_i − x_j‖ for every benign j (El Mhamdi, Guerraoui and Rouault,
    ICML 2018).  §VI-A starts it after 20 rounds, when the benign models have become alike.
    """
    assert view.benign is not None
    slot_of(coordinate, view.layout)
    crowd: DistanceCache = view.shared.setdefault("crowd", DistanceCache())
    squares = crowd.squared_distances(view.benign)
    r = len(view.benign)
    mean = crowd.models.mean(0)
    # r_j² = ‖x̂ − x_j‖² = Σ_i d_ij² / r − Σ_ij d_ij² / 2r², which needs no pass over the models.
    to_mean = squares.mean(1) - squares.sum() / (2 * r * r)
    # ‖x̂ − x_j + γ e_c‖² = γ² + 2 γ u_j + r_j² ≤ max d²: the positive root, smallest over j.
    u = (mean[coordinate] - crowd.models[:, coordinate]).double()
    room = (squares.max() - to_mean).clamp(min=0)
    shift = (-u + (u.square() + room).sqrt()).min()
    mean[coordinate] += shift.float()
    return mean


@declares(trains=True)
def inverse(view: View, *, scale: float = 1.0) -> Tensor:
    """x̄ − λ (x − x̄): the honest update x from x̄, reversed (App. H-F names it, undefined).

    Since x − x̄ is a step down the gradient, this climbs it: elsewhere "gradient ascent".
    """
    positive("scale", scale)
    return view.chosen - scale * (view.honest - view.chosen)


@declares()
def copy(view: View, *, std: float = 0.0) -> Tensor:
    """x̄ as it came, with N(0, std²) on every parameter: a free rider that never trains.

    On a ring x̄ is its predecessor's model; on a graph what the rule has made of the neighbours'.
    """
    not_negative("std", std)
    if std == 0:
        return view.chosen.clone()
    noise = torch.randn(view.honest.shape, generator=view.generator, device=view.honest.device)
    return view.chosen + std * noise


@declares(blind=True)
def silent(view: View) -> None:
    """Sends nothing: a crash, or a node that only listens."""


@declares(trains=True)
def stale(view: View) -> Tensor:
    """Repeats the model of the attack's first turn for ever, under the current round's number."""
    first: Tensor = view.state.setdefault("first", view.honest)
    return first


@declares()
def garbage(view: View, *, kind: str = "mixed") -> Tensor:
    """Values that are no parameters: "nan", "inf", "-inf", "huge" (3·10³⁸), or "mixed".

    What a broken float, a bit flip or a hostile serialiser produces.  "mixed" draws one of the
    four for each turn and places it in a random tenth of the vector.
    """
    values = {"nan": torch.nan, "inf": torch.inf, "-inf": -torch.inf, "huge": 3e38}
    one_of("kind", kind, ("mixed", *values))
    model = view.honest.clone()
    if kind != "mixed":
        return model.fill_(values[kind])
    value = values[str(view.rng.choice(list(values)))]
    where = torch.rand(model.shape, generator=view.generator, device=model.device) < 0.1
    where[int(view.rng.integers(len(model)))] = True
    return model.masked_fill_(where, value)
