"""Distances among many models of which few have changed since the last look."""

from collections.abc import Mapping

import torch
from torch import Tensor


class DistanceCache:
    """The models that omniscient attackers watch, and their squared distances.

    Between two Byzantine turns one or two benign nodes have moved; only their rows are computed
    again.  Each entry is a function of its two models alone, so the history leaves no trace.
    """

    def __init__(self) -> None:
        self.models = torch.empty(0)  # [model, parameter]
        self._known: dict[int, Tensor] = {}
        self._squares: Tensor | None = None  # made when somebody first asks for distances

    def stack(self, models: Mapping[int, Tensor]) -> Tensor:
        """All models, one a row, in the mapping's order; not to be changed."""
        if self._update(models):
            self._squares = None
        return self.models

    def squared_distances(self, models: Mapping[int, Tensor]) -> Tensor:
        """‖x_i − x_j‖² for all pairs, in float64."""
        moved = self._update(models)
        if self._squares is None:
            r = len(models)
            self._squares = self.models.new_zeros(r, r, dtype=torch.float64)
            moved = list(range(r))
        for i in moved:
            row = (self.models - self.models[i]).square_().sum(1).double()
            self._squares[i] = row
            self._squares[:, i] = row
        return self._squares

    def _update(self, models: Mapping[int, Tensor]) -> list[int]:
        """Take in what is new; the rows that have changed."""
        if list(models) != list(self._known):
            self.models = torch.stack(list(models.values()))
            self._squares = None
            moved = list(range(len(models)))
        else:
            pairs = zip(models.values(), self._known.values(), strict=True)
            moved = [i for i, (new, known) in enumerate(pairs) if new is not known]
            rows = list(models.values())
            for i in moved:
                self.models[i] = rows[i]
        self._known = dict(models)
        return moved
