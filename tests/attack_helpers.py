"""A Byzantine node's view of one turn of a small network."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from basil import testing
from basil.attack import ATTACKS, View
from basil.attack.view import Lie
from basil.learning.layout import Layout, layout_of
from basil.learning.models import mlp
from basil.learning.symmetry import find

NETWORK = mlp((3,), 2, hidden=4)
LAYOUT = layout_of(NETWORK)
SYMMETRIES = find(NETWORK, LAYOUT, torch.zeros(2, 3))
D = LAYOUT.size


def view(*, layout: Layout = LAYOUT, **known: Any) -> View:
    """A turn of node 1; benign models given as a list belong to nodes 10, 11, …"""
    return testing.view(layout, **{"symmetries": SYMMETRIES, **known})


def vector(name: str, seen: View, **options: Any) -> Tensor:
    """The one vector that an attack of the table sends to all, and asks nothing for."""
    lie = ATTACKS[name](seen, **options)
    assert isinstance(lie, Tensor)
    return lie


def told(name: str, seen: View, losses: Callable[[Tensor], Tensor], **options: Any) -> Lie:
    """What an attack of the table sends that asks for losses."""
    return testing.told(ATTACKS[name], seen, losses, **options)
