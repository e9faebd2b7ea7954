"""What an adversary can see when it decides what to send, and what it must declare."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from basil.learning.layout import Layout
from basil.learning.promises import Selection, tensor_of


@dataclass(frozen=True, eq=False)
class View:
    """A Byzantine node's knowledge in one turn, cut down to what its attack has declared."""

    node: int
    round: int
    selected: Tensor | Selection  # x̄: the model that the protocol went on from, see `chosen`
    honest: Tensor  # what the protocol wanted to send
    # An attack that does not train compares and improves nothing either: both of the above are
    # then the nearest stored model, whatever it is worth.
    layout: Layout
    generator: torch.Generator  # for vectors
    rng: np.random.Generator  # for decisions
    state: dict[str, Any]  # the attacker's own memory from turn to turn
    shared: dict[str, Any]  # what colluders on one machine compute once; lost without harm
    benign: list[Tensor] | None  # omniscient attacks only: what each benign node sent last

    @property
    def chosen(self) -> Tensor:
        """x̄ as a vector: on a GPU that costs a little, so only for those who need it."""
        return tensor_of(self.selected)


class Attack:
    """From a view to the vector to send instead (None sends nothing), with what it declares."""

    def __init__(
        self, function: Callable[..., Tensor | None], omniscient: bool, trains: bool, start: int
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.omniscient = omniscient
        self.trains = trains
        self.start = start

    def __call__(self, view: View, **options: Any) -> Tensor | None:
        return self.function(view, **options)


def declares(
    *, omniscient: bool = False, trains: bool = False, start: int = 1
) -> Callable[[Callable[..., Tensor | None]], Attack]:
    """State what an attack sees, whether it needs an honest update, and when it begins.

    omniscient: it sees what all benign nodes sent last; otherwise only its own node's state.
    trains: it needs the honest update of its own node; otherwise that work is skipped (its time
    passes all the same).
    """
    return lambda function: Attack(function, omniscient, trains, start)
