"""What waits on a board is done in an order that serves all, however rings ask for it."""

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from basil.data import Samples
from basil.learning.compute import Compute
from basil.learning.cuda import GraphCompute
from basil.learning.models import cross_entropy, mlp
from basil.learning.pool import Batch, Pool
from basil.learning.promises import Chosen, Losses

CLOSE: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-5}  # after several steps
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
    ),
]
pytestmark = pytest.mark.parametrize("device", DEVICES)
KINDS = ["train", "select", "combine", "write"]


def mixed(models: Tensor, losses: Tensor, number: Tensor, *, share: float) -> tuple[Tensor, Tensor]:
    """A model of several, and a number."""
    means = losses.mean(1)
    model = share * (means.softmax(0)[:, None] * models).sum(0)
    return model + 0.01 * number.tanh(), means.min()  # bounded: values that run away differ by more


def written(model: Tensor, losses: Tensor) -> Tensor:
    """No function of many rows: it writes into a tensor of its own."""
    made = torch.zeros(len(model), device=model.device)
    made[:] = model * losses.mean().tanh()
    return made


def lowest(losses: Tensor, means: Tensor) -> Tensor:
    return means.argmin()


class Asker:
    """Asks for what needs what it has asked for before."""

    def __init__(self, compute: Compute) -> None:
        self.compute = compute
        self.models = [compute.initial * factor for factor in (1.0, 0.5, 0.9)]
        self.numbers = [compute.initial.new_ones(())]
        self.losses: list[Losses] = []

    def made(self) -> dict[str, Tensor]:
        losses = [promise.wait() for promise in self.losses]
        named = ("model", self.models), ("number", self.numbers), ("losses", losses)
        return {f"{name} {i}": tensor for name, some in named for i, tensor in enumerate(some)}

    def go_on_from(self, other: "Asker") -> None:
        """From the same values: differences do not add up."""
        self.models, self.numbers, self.losses = other.models[-3:], other.numbers[-1:], []

    def ask(self, kind: str, which: tuple[int, int], batches: list[Batch]) -> None:
        compute, models = self.compute, [self.models[-1 - i] for i in which]
        scores = [compute.score(model, batches[:1])[0] for model in models]
        self.losses += compute.score(models[0], batches)
        match kind:
            case "train":
                self.models.append(compute.train(models[0], batches, 0.1, lambda: 0))
            case "select":
                selected = compute.select(models, scores, models[0], lowest)
                self.models.append(compute.train(selected, batches, 0.1, lambda: 0))
            case "combine":
                args = models, scores, self.numbers[-1]
                model, number = compute.combine(partial(mixed, share=0.9), args)
                self.models.append(model)
                self.numbers.append(number)
            case "write":
                self.models.append(compute.combine(written, (models[1], scores[0])))


@pytest.mark.parametrize("rows", [12, 128])  # so few that some have to be done before others ask
@pytest.mark.parametrize("seed", range(3))
def test_rings_ask_for_this_and_that(
    device: str, seed: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("basil.learning.cuda.board.SPARE", rows)
    torch.manual_seed(seed)
    stream = np.random.default_rng(seed)
    x = stream.integers(0, 256, (300, 1, 8, 8), dtype=np.uint8)
    pool = Pool(Samples(x, stream.integers(0, 5, 300)), (120.0,), (60.0,), device)
    network = mlp((1, 8, 8), 5)
    plain = [Asker(Compute(copy.deepcopy(network), cross_entropy, pool)) for _ in range(4)]
    fast: list[Asker] = []
    first: GraphCompute | None = None
    for _ in plain:
        own = copy.deepcopy(network)
        compute = GraphCompute(own, cross_entropy, pool, models=1, deterministic=True, beside=first)
        first = first or compute
        fast.append(Asker(compute))
    assert first is not None
    for _ in range(25):
        with first.later():
            for ring in stream.integers(len(plain), size=12):
                kind, which = str(stream.choice(KINDS)), tuple(stream.integers(3, size=2))
                batches = [Batch(stream.permutation(300)[:16]) for _ in range(2)]
                for asker in (plain[ring], fast[ring]):
                    asker.ask(kind, which, batches)
        for one, other in zip(plain, fast, strict=True):
            other.compute.catch_up()
            found, wanted = other.made(), one.made()
            for name, tensor in found.items():
                torch.testing.assert_close(tensor, wanted[name], **CLOSE)
            one.go_on_from(other)
            other.go_on_from(other)


def test_a_number_is_read_once_it_is_there(device: str) -> None:
    """A rule's choice waits with its turn; the round may end, and who chose whom is read, then."""
    stream = np.random.default_rng(0)
    x = stream.integers(0, 256, (90, 1, 8, 8), dtype=np.uint8)
    pool = Pool(Samples(x, stream.integers(0, 5, 90)), (120.0,), (60.0,), device)
    compute = GraphCompute(mlp((1, 8, 8), 5), cross_entropy, pool, deterministic=True)
    models = [compute.initial * factor for factor in (1.0, 0.0, -1.0)]
    for wanted in (2, 0, 1, 2, 1, 0, 2):  # each as another than the one before
        losses = torch.ones(3, 16, device=device)
        losses[wanted] = 0.5
        with compute.later():
            number = compute.combine(_argmin, (losses,))
        assert compute.indices([Chosen(models, number)]).wait() == [wanted]


def _argmin(losses: Tensor) -> Tensor:
    return losses.mean(1).argmin()
