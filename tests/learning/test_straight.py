"""A network called layer by layer is the network, bit for bit."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from basil.learning.models import cifar_cnn, gelu, mlp, resnet, softmax
from basil.learning.straight import Straight

SMALL, LARGE = (1, 8, 8), (3, 32, 32)
NETWORKS: dict[str, tuple[Callable[..., nn.Module], tuple[int, ...], bool]] = {
    "mlp": (mlp, SMALL, True),
    "softmax": (softmax, SMALL, True),
    "gelu": (gelu, SMALL, False),
    "cifar-cnn": (cifar_cnn, LARGE, False),
    "resnet": (resnet, LARGE, False),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("training", [True, False])
def test_outputs_and_gradients_are_the_networks(name: str, training: bool) -> None:
    build, shape, steady = NETWORKS[name]
    network = build(shape, 10).train(training)
    straight, x = Straight.of(network), torch.rand(4, *shape)
    assert straight.steady == steady
    parameters = list(network.parameters())
    theirs, ours = network(x), straight(x)
    assert torch.equal(theirs, ours)
    of_theirs, of_ours = (torch.autograd.grad(out.sum(), parameters) for out in (theirs, ours))
    assert all(map(torch.equal, of_theirs, of_ours))


def test_it_follows_the_parameters() -> None:
    network = mlp(SMALL, 10)
    straight, x = Straight.of(network), torch.rand(4, *SMALL)
    for parameter in network.parameters():
        parameter.data = torch.rand(parameter.shape)
    assert torch.equal(network(x), straight(x))


def test_hooks_and_layers_of_ones_own_are_called() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    network = nn.Sequential(nn.Flatten(), Doubled(64, 20), nn.ReLU(inplace=True), nn.Linear(20, 5))
    network[3].register_forward_hook(lambda module, given, made: made + 1)
    straight, x = Straight.of(network), torch.rand(4, *SMALL)
    assert torch.equal(network(x), straight(x))
    assert not straight.steady
    network = nn.Sequential(nn.Linear(4, 2))
    network.register_forward_pre_hook(lambda module, given: (given[0] * 3,))
    x = torch.rand(3, 4)
    assert torch.equal(network(x), Straight.of(network)(x))
