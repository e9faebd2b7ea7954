"""Algorithm 1 of the paper (Basil), line by line: loops, queues and torch's own SGD.

    python examples/algorithm1.py

Nine nodes on a ring train a small network on scikit-learn's digits; three are Byzantine and send
noise.  No engine, no clock and no faults of the network: for reading beside the paper.  A test
holds `basil run` to it, choice by choice and bit for bit (tests/protocol/test_twin.py).
"""

import copy
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

Turn = tuple[int, int, int | None, Tensor]  # round, node, whose model it chose, its new model
Samples = tuple[Tensor, Tensor]


def algorithm_1(
    order: Sequence[int],
    S: int,
    K: int,
    x0: Tensor,
    loss: Callable[[Tensor, int, int], float],
    update: Callable[[Tensor, int, int], Tensor],
    sends: Callable[[Tensor, int, int], Tensor],
) -> list[Turn]:
    """All nodes' turns.  `loss`, `update` and `sends`: of a model, by node i in round k."""
    N = len(order)
    first: tuple[int | None, Tensor] = (None, x0)
    stored = {i: deque([first], maxlen=S) for i in order}  # lines 3-5
    turns: list[Turn] = []
    for k in range(1, K + 1):  # line 7
        for p, i in enumerate(order):  # line 8
            nearest_first = list(reversed(stored[i]))  # so that the nearest wins a tie
            losses = [loss(model, i, k) for _, model in nearest_first]
            best = min(range(len(losses)), key=losses.__getitem__)  # line 10, eq. (3)
            chosen, start = nearest_first[best]
            model = update(start, i, k)  # line 11, eq. (2)
            turns.append((k, i, chosen, model))
            sent = sends(model, i, k)  # lines 12-14: a Byzantine node sends anything
            for s in range(1, S + 1):  # lines 15-16
                stored[order[(p + s) % N]].append((i, sent))
    return turns


def load(network: nn.Module, model: Tensor) -> nn.Module:
    """The network with the parameters of a model, which is a flat vector."""
    module = copy.deepcopy(network)
    vector_to_parameters(model.clone(), module.parameters())
    return module


def mean_loss(network: nn.Module, model: Tensor, samples: Samples) -> float:
    x, y = samples
    with torch.no_grad():
        return float(nn.functional.cross_entropy(load(network, model)(x), y))


def sgd(
    network: nn.Module,
    model: Tensor,
    batches: Iterable[Samples],
    rate: float,
    before_step: Callable[[nn.Module], None] = lambda module: None,
) -> Tensor:
    """One step for each mini-batch."""
    module = load(network, model)
    optimiser = torch.optim.SGD(module.parameters(), lr=rate)
    for x, y in batches:
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        before_step(module)
        optimiser.step()
    return parameters_to_vector(module.parameters()).detach()


def main() -> None:
    from sklearn.datasets import load_digits

    N, S, K, byzantine, batch = 9, 4, 25, {1, 4, 5}, 32
    torch.set_num_threads(1)  # more are slower for a network as small as this
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.data / 16, dtype=torch.float32)
    y = torch.tensor(digits.target)
    shuffled = torch.randperm(len(x))
    test, train = shuffled[:360], shuffled[360:]
    local = train.chunk(N)  # Z_i
    network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    x0 = parameters_to_vector(network.parameters()).detach()

    def draw(i: int, k: int) -> Samples:
        """The mini-batch of a node in a round: the same for selection and update (Fig. 2)."""
        stream = torch.Generator().manual_seed(1000 * k + i)
        drawn = local[i][torch.randperm(len(local[i]), generator=stream)[:batch]]
        return x[drawn], y[drawn]

    turns = algorithm_1(
        range(N),
        S,
        K,
        x0,
        loss=lambda model, i, k: mean_loss(network, model, draw(i, k)),
        update=lambda model, i, k: sgd(network, model, [draw(i, k)], 0.5 / (1 + 0.03 * k)),
        sends=lambda model, i, k: torch.randn_like(model) if i in byzantine else model,
    )
    for k in range(5, K + 1, 5):
        of_round = [turn for turn in turns if turn[0] == k and turn[1] not in byzantine]
        right = [
            (load(network, model)(x[test]).argmax(1) == y[test]).float().mean()
            for *_, model in of_round
        ]
        fooled = sum(chosen in byzantine for _, _, chosen, _ in of_round)
        print(f"round {k:2}: worst accuracy {min(right):.3f}, chose a Byzantine model: {fooled}")


if __name__ == "__main__":
    main()
