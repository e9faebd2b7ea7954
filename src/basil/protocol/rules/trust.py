"""No further in a lap than one could have gone oneself."""

import torch
from torch import Tensor

from basil.errors import UserError
from basil.learning.promises import chosen, tensor_of
from basil.protocol.requests import Score
from basil.protocol.rules.contract import Candidates, Choice, Deliberation
from basil.protocol.rules.noise import excess
from basil.protocol.rules.standing import in_good_standing

KEPT = 0.9  # how much of the mean square of one's steps is left after a round


def trust(
    candidates: Candidates,
    *,
    z: float = 1.0,
    doubt: float = 1.0,
    memory: float = 0.98,
    c: float = 0.3,
) -> Deliberation:
    """`standing`, and what it chooses is pulled into a region around one's own last model.

    y = clamp(x_j, x_i − c·N·s, x_i + c·N·s) in every coordinate: x_j is what `standing` chooses,
    x_i this node's last model, N the turns of a lap, and s the root mean square of this node's own
    turns in that layer (of the last rounds, weights 0.9^a).  y is scored; if its losses are within
    z standard errors of the lowest, the node goes on from y, else from x_i.  Before its first turn
    a node has no region and goes on from x_j.  (No publication's.)

    Why: colluders that lean on one coordinate, each within the noise of a batch, move it in a lap
    as far as b such shifts reach; N honest turns in random directions move it by √N · s, and N in
    the same direction by N · s.  s is made of one's own turns, which nobody else can inflate.  The
    pulled model is scored since a corner of the region may be worse than anything that was sent.

    Limits: a drift of less than c·N·s in a lap passes; docs/rules.md says what pushes back.  With a
    c so small that honest progress is cut off, the ring slows down to this pace.  It costs S + 2
    evaluations a turn and a second model in a node's memory.
    """
    if not c > 0:
        raise UserError(f"scheme.c = {c}: it must be above 0")
    losses, means, number, known = yield from in_good_standing(candidates, z, doubt, memory)
    selected = chosen([*candidates.models, candidates.own], number)
    model, own = tensor_of(selected), candidates.own
    before = candidates.state.get("trust")
    state = dict[str, Tensor]()
    if before is not None:
        squares = _mean_squares(own - before["start"], candidates.layers)
        if "squares" in before:
            squares = KEPT * before["squares"] + (1 - KEPT) * squares
        state["squares"] = squares
        reach = c * candidates.lap * _spread(squares.sqrt(), candidates.layers)
        pulled = torch.minimum(torch.maximum(model, own - reach), own + reach)
        scored = (yield Score(pulled, candidates.batch)).wait()
        lowest = losses.index_select(0, means.argmin().view(1))[0]
        model = torch.where(excess(scored, lowest) <= z, pulled, own)
    state["start"] = model
    return Choice(model, selected, {"standing": known, "trust": state})


def _mean_squares(step: Tensor, layers: tuple[slice, ...]) -> Tensor:
    """Of a turn's changes, for each layer."""
    return torch.stack([step[layer].square().mean() for layer in layers])


def _spread(values: Tensor, layers: tuple[slice, ...]) -> Tensor:
    """A value for each layer, repeated for each of its coordinates."""
    pairs = zip(values, layers, strict=True)
    return torch.cat([value.expand(layer.stop - layer.start) for value, layer in pairs])
