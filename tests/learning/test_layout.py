"""Networks as vectors: what is in, in which order, and what is refused."""

import pytest
import torch
from torch import nn

from basil.errors import UserError
from basil.learning.layout import layout_of
from basil.learning.models import mlp


def test_a_vector_holds_every_parameter_in_order() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    layout = layout_of(module)
    assert [(s.name, s.shape, s.start, s.stop) for s in layout.slots] == [
        ("0.weight", (3, 2), 0, 6),
        ("0.bias", (3,), 6, 9),
        ("2.weight", (1, 3), 9, 12),
        ("2.bias", (1,), 12, 13),
    ]
    expected = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    assert torch.equal(layout.flatten(module), expected)


def test_a_layer_is_weights_and_biases_together() -> None:
    layout = layout_of(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)))
    assert layout.layers == [slice(0, 9), slice(9, 13)]
    alone = nn.Linear(2, 2)
    assert layout_of(alone).layers == [slice(0, 6)]


def test_views_share_memory_with_the_vector() -> None:
    layout = layout_of(mlp((4,), 2, hidden=3))
    vector = torch.zeros(layout.size)
    layout.views(vector)["1.bias"].fill_(7)
    assert vector.count_nonzero() == 3


def test_running_statistics_travel_but_are_not_trained() -> None:
    layout = layout_of(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    untrained = {s.name for s in layout.slots if not s.trained}
    assert untrained == {"1.running_mean", "1.running_var"}
    assert layout.size == 9 + 6 + 6


def test_tied_weights_have_one_place() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3, bias=False)
            self.b = nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

    assert layout_of(Tied()).size == 9


def test_the_fingerprint_tells_layouts_apart() -> None:
    one, same = layout_of(mlp((4,), 2)), layout_of(mlp((4,), 2))
    assert one.fingerprint == same.fingerprint
    assert one.fingerprint != layout_of(mlp((4,), 3)).fingerprint


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.Linear(2, 2).double(), "float32"),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, momentum=None)), "momentum"),
        (nn.ReLU(), "no parameter"),
    ],
)
def test_what_cannot_be_a_vector_is_refused_with_a_reason(module: nn.Module, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        layout_of(module)
