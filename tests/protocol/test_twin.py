"""Algorithm 1 as a slow, literal twin: examples/algorithm1.py.

It shares with the engine only what a paper would call the inputs: the data, the order, who lies,
which samples a node draws, x⁰, and a Byzantine node's random numbers.  It must make the same
choices and arrive at the same models, turn by turn.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from basil import rng
from basil.experiment import Setup, Simulation, set_up
from basil.learning.models import mlp
from basil.recipe import Recipe, parse
from basil.record.recorder import Recorder

from algorithm1 import Samples, Turn, algorithm_1, mean_loss, sgd

N, B, S, K = 9, 3, 4, 4


def recipe(attack: str, canonical: bool, extrapolate: float = 0.0, **learning: Any) -> Recipe:
    return parse(
        {
            "seed": 5,
            "ring": {"nodes": N, "byzantine": B, "connectivity": S},
            "scheme": {"rounds": K, "canonical": canonical, "extrapolate": extrapolate},
            "learning": {"batch": 20, "rate": 0.3, **learning},
            "attack": {"name": attack},
            "record": {"every": K},
        }
    )


def literal_basil(experiment: Setup, attack: str) -> list[Turn]:
    """The turns of examples/algorithm1.py with the same inputs."""
    settings, compute = experiment.recipe, experiment.compute
    network, canonical = mlp((1, 8, 8), 10), compute.canonical  # not the paper's
    form = canonical or (lambda model: model)

    def draw(i: int, k: int) -> list[Samples]:
        drawn = experiment.node_data.draw(i, k)
        return [compute.pool.take(torch.from_numpy(batch.indices)) for batch in drawn]

    def limit(module: nn.Module) -> None:
        if canonical is not None:
            parameters = list(module.parameters())
            gradients = [p.grad.flatten() for p in parameters if p.grad is not None]
            vector = parameters_to_vector(parameters).detach()
            most = canonical.limits(vector, torch.cat(gradients), canonical.sizes)
            vector_to_parameters(vector.clamp(-most, most), parameters)

    last: dict[int, Tensor] = {}  # each node's own
    laps = settings.scheme.extrapolate / N

    def update(model: Tensor, i: int, k: int) -> Tensor:
        rate = settings.learning.rate / (1 + settings.learning.options["decay"] * k)
        if laps and i in last:  # the paper has no such thing
            ahead = form(model + laps * (model - last[i]))
            model = ahead if loss(ahead, i, k) < loss(model, i, k) else model
        last[i] = form(sgd(network, model, draw(i, k), rate, limit))
        return last[i]

    def sends(model: Tensor, i: int, k: int) -> Tensor:
        if i in experiment.participants.byzantine and attack == "gaussian":
            stream = rng.torch_stream(settings.seed, "attack", i, k)
            model = torch.randn(model.shape, generator=stream)
        if i in experiment.participants.byzantine and attack == "sign-flip":
            model = -model
        return form(model)

    def loss(model: Tensor, i: int, k: int) -> float:
        return mean_loss(network, model, draw(i, k)[0])

    return algorithm_1(
        experiment.participants.ring.order, S, K, compute.initial, loss, update, sends
    )


@pytest.mark.parametrize("attack", ["none", "gaussian", "sign-flip"])
@pytest.mark.parametrize("learning", [{}, {"local_steps": 3}, {"local_epochs": 1}])
@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("extrapolate", [0.0, 2.0])
def test_engine_follows_algorithm_1(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    attack: str,
    learning: dict[str, int],
    canonical: bool,
    extrapolate: float,
) -> None:
    seen: list[tuple[int, int, int | None, Any]] = []
    original = Recorder.record

    def record(self: Recorder, node: int, turn: Any, now: float) -> None:
        seen.append((turn.round, node, turn.chosen, turn.model))
        original(self, node, turn, now)

    monkeypatch.setattr(Recorder, "record", record)
    experiment = set_up(recipe(attack, canonical, extrapolate, **learning))
    Simulation(experiment).run(tmp_path / "run")
    expected = literal_basil(experiment, attack)
    benign = [
        i for i, turn in enumerate(expected) if turn[1] not in experiment.participants.byzantine
    ]
    assert len(seen) == len(expected) == N * K
    assert len(benign) >= (N - B) * K
    for i in benign:
        assert seen[i][:3] == expected[i][:3]
        assert torch.equal(seen[i][3], expected[i][3])  # one thread: not a bit apart
    if extrapolate:  # some turns have begun ahead
        plain = literal_basil(set_up(recipe(attack, canonical, **learning)), attack)
        assert any(not torch.equal(a[3], b[3]) for a, b in zip(expected, plain, strict=True))
    # The twin is worth something only if choices are made: not always the same predecessor.
    assert (
        len({experiment.participants.ring.distance(c, n) for _, n, c, _ in seen if c is not None})
        > 1
    )
