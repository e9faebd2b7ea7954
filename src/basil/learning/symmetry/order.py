"""Hidden units in the order of another model's: without it an average of two models is neither.

Models that come from one another have their units in the same places, and each unit is most like
the one in its own place.  Where a Byzantine node has changed places, the likeness shows where they
went.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from basil.learning.symmetry.parts import Symmetries


def align(model: Tensor, like: Tensor, *, symmetries: Symmetries) -> Tensor:
    """The same function, each unit in the place of the one in `like` that it resembles most.

    Likeness is the cosine between incoming weights, layer by layer from the input on.  Two units
    belong together if each is the other's most similar; the rest keep their order.
    """
    aligned = model.clone()
    for units in symmetries.ordered:
        theirs, ours = (
            normalize(units.gauge.rows(vector).nan_to_num(0, 0, 0), dim=1)
            for vector in (aligned, like)
        )
        units.permute(aligned, _partners(ours @ theirs.T))
    return aligned


def _partners(likeness: Tensor) -> Tensor:
    """For each row a column, each column once; in operations that never look at a value."""
    rows = torch.arange(len(likeness), device=likeness.device)
    best, back = likeness.argmax(1), likeness.argmax(0)
    mutual, taken = back[best] == rows, best[back] == rows  # rows, columns with a partner
    free_rows, free_columns = (free.int().argsort(stable=True) for free in (mutual, taken))
    rest = torch.empty_like(rows).scatter(0, free_rows, free_columns)
    return torch.where(mutual, best, rest)
