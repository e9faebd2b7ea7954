"""Distances among many models of which few have changed since the last look."""

import torch
from torch import Tensor


class Crowd:
    """The models that omniscient attackers watch, and their squared distances.

    Between two Byzantine turns one or two benign nodes have moved; only their rows are computed
    again.  Each entry is a function of its two models alone, so the history leaves no trace.
    """

    def __init__(self) -> None:
        self.models = torch.empty(0)  # [model, parameter]
        self._known: list[Tensor] = []
        self._squares = torch.empty(0, dtype=torch.float64)

    def squared_distances(self, models: list[Tensor]) -> Tensor:
        """‖x_i − x_j‖² for all pairs, in float64."""
        if len(models) != len(self._known):
            self.models = torch.stack(models)
            self._squares = self.models.new_zeros(len(models), len(models), dtype=torch.float64)
            moved = list(range(len(models)))
        else:
            moved = [i for i, m in enumerate(models) if m is not self._known[i]]
            for i in moved:
                self.models[i] = models[i]
        self._known = list(models)
        for i in moved:
            row = (self.models - self.models[i]).square_().sum(1).double()
            self._squares[i] = row
            self._squares[:, i] = row
        return self._squares
