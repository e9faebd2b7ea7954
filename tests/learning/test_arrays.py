"""What numpy does on a CPU is what torch would do, bit for bit."""

import pytest
import torch
from torch import Tensor, nn

from basil.learning.layout import layout_of
from basil.learning.models import cifar_cnn, gelu, mlp, resnet
from basil.learning.symmetry import Canonical, find

NETWORKS = {
    "mlp": (lambda: mlp((1, 8, 8), 10), (2, 1, 8, 8)),
    "few weights": (lambda: nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 3)), (2, 5)),
    "cifar-cnn": (lambda: cifar_cnn((3, 32, 32), 10), (2, 3, 32, 32)),
    "resnet": (lambda: resnet((3, 32, 32), 10, width=4), (2, 3, 32, 32)),
    "gelu": (lambda: gelu((1, 8, 8), 10), (2, 1, 8, 8)),
}


def _lies(initial: Tensor, canonical: Canonical) -> list[Tensor]:
    """As training leaves a model, and as no training does."""
    draw = torch.Generator().manual_seed(0)
    models = [initial * (1 + size * torch.randn(initial.shape, generator=draw)) for size in (0, 1)]
    for value in (0.0, 1e30, 1e-42, torch.inf, torch.nan):
        model = models[1].clone()
        for units in canonical.symmetries.scaled:
            units.gauge.of(model)[:, :3] = value
        models.append(model)
    return models


@pytest.mark.parametrize("kind", NETWORKS)
def test_numpy_scales_as_torch_does(kind: str) -> None:
    build, shape = NETWORKS[kind]
    network = build()
    layout = layout_of(network)
    initial = layout.flatten(network)
    canonical = Canonical(find(network, layout, torch.rand(shape)), initial)
    for model in _lies(initial, canonical):
        theirs = model.clone()
        if canonical.symmetries.scaled:
            canonical._scale(theirs, canonical.sizes)
        ours = canonical._scaled(model, canonical.sizes)
        assert torch.equal(ours.isnan(), theirs.isnan())
        assert torch.equal(ours.nan_to_num(), theirs.nan_to_num())


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("silent", [0.0, 0.2, 0.5, 1.0])
def test_nothing_is_bounded_where_no_limit_is_set(kind: str, silent: float) -> None:
    """On a CPU one looks first whether there is a limit at all."""
    build, shape = NETWORKS[kind]
    network = build()
    layout = layout_of(network)
    initial = layout.flatten(network)
    canonical = Canonical(find(network, layout, torch.rand(shape)), initial)
    gradient = torch.ones_like(initial)
    for part, witness, _ in canonical._bounded:
        for each in (part, witness) if witness else (part,):
            each.of(gradient)[:, : int(silent * each.units)] = 0.0
    limits = canonical.limits(initial, gradient, canonical.sizes)
    model = 100 * initial
    limited = canonical.limited(model, gradient, canonical.sizes)
    assert (limited is model) == bool(limits.isinf().all())
