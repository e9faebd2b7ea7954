"""Many rings as one computation: each as if it were alone.

On a CPU the GPU's text runs uncaptured, so these tests run everywhere, and once more on a GPU.
"""

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from basil.data import Dataset, Samples
from basil.engine.simulate import Simulator
from basil.experiment import Custom, Machine, Setup, Simulation, set_up
from basil.learning.compute import Compute
from basil.learning.cuda import GraphCompute
from basil.learning.cuda.board import Board, Group
from basil.learning.cuda.combination import Combined
from basil.learning.cuda.launch import Task
from basil.learning.cuda.layers import apply, layers_of
from basil.learning.cuda.turn import Turn, Turns
from basil.learning.layout import layout_of
from basil.learning.models import cifar_cnn, cross_entropy, gelu, mlp
from basil.learning.optimizers import Optimizer
from basil.learning.pool import Batch, Pool
from basil.many.round_robin import Sharing, round_robin
from basil.protocol.requests import Record
from basil.protocol.rules import RULES
from basil.recipe import parse

CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-6}
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
    ),
]
pytestmark = pytest.mark.parametrize("device", DEVICES)


def strided() -> nn.Module:
    pooled = nn.Sequential(nn.AvgPool2d(2), nn.Flatten())
    return nn.Sequential(
        nn.Conv2d(3, 5, 3, stride=2, padding=1), nn.ReLU(), pooled, nn.Linear(320, 7, bias=False)
    )


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        (cifar_cnn((3, 32, 32), 10), (3, 32, 32)),
        (mlp((1, 8, 8), 5), (1, 8, 8)),
        (gelu((1, 8, 8), 5), (1, 8, 8)),
        (strided(), (3, 32, 32)),
    ],
)
@pytest.mark.parametrize("gradients", [True, False])
def test_layers_of_three_rings(
    device: str, network: nn.Module, shape: tuple[int, ...], gradients: bool
) -> None:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    layers, layout, network = layers_of(network), layout_of(network), network.to(device)
    assert layers is not None
    vectors = 0.1 * torch.randn(3, layout.size, device=device, requires_grad=gradients)
    x = torch.randn(3, 6, *shape, device=device)
    with torch.set_grad_enabled(gradients):
        state = {s.name: vectors[:, s.start : s.stop].unflatten(1, s.shape) for s in layout.slots}
        outputs = apply(layers, state, x)
    for ring, vector in enumerate(vectors.detach()):
        alone = vector.requires_grad_()
        expected = functional_call(network, layout.views(alone), (x[ring],))
        torch.testing.assert_close(outputs[ring], expected, rtol=1e-4, atol=1e-5)
        if gradients:
            [mine] = torch.autograd.grad(outputs[ring].square().sum(), vectors, retain_graph=True)
            [other] = torch.autograd.grad(expected.square().sum(), alone)
            torch.testing.assert_close(mine[ring], other, rtol=1e-3, atol=1e-4)


def test_what_is_not_known_is_not_joined(device: str) -> None:
    class Own(nn.Module):
        pass

    for part in (nn.BatchNorm2d(3), nn.Conv2d(4, 4, 3, groups=2), Own(), nn.Dropout(0.5)):
        assert layers_of(nn.Sequential(nn.Flatten(), part).to(device)) is None


@pytest.mark.parametrize(
    ("parts", "shared"),
    [
        ([nn.Linear(64, 5)], True),
        ([nn.BatchNorm1d(64), nn.Linear(64, 5)], False),
        ([nn.Dropout(0.5), nn.Linear(64, 5)], False),
    ],
)
def test_what_is_not_joined_shares_nothing(
    device: str, parts: list[nn.Module], shared: bool
) -> None:
    """Such rings run side by side, each on a stream of its own."""
    data = noise()
    pool = Pool(data.train, data.mean, data.std, device)
    network = nn.Sequential(nn.Flatten(), *parts)
    first = GraphCompute(network, cross_entropy, pool)
    second = GraphCompute(copy.deepcopy(network), cross_entropy, pool, beside=first)
    assert (second.board is first.board) == first.joins == second.joins == shared
    adamw = Optimizer("adamw")
    third = GraphCompute(copy.deepcopy(network), cross_entropy, pool, optimizer=adamw, beside=first)
    assert third.board is not first.board


def noise() -> Dataset:
    stream = np.random.default_rng(0)
    x = stream.integers(0, 256, (900, 1, 8, 8), dtype=np.uint8)
    part = Samples(x, stream.integers(0, 5, 900))
    return Dataset("noise", part, part, 5, tuple("abcde"), (120.0,), (60.0,))


class Keep:
    """An observer that keeps what is recorded."""

    def __init__(self) -> None:
        self.records: list[tuple[int, Record]] = []

    def record(self, node: int, record: Record, time: float) -> None:
        self.records.append((node, record))

    def instant(self, simulator: object) -> bool:
        return True

    def found(self) -> tuple[list[int | None], Tensor]:
        made = [record for _, record in self.records if record.selected is not None]
        final = torch.stack([record.model for _, record in self.records[-9:]])
        return [record.chosen for record in made], final


def test_a_place_is_nobody_elses_until_what_waits_is_done(device: str) -> None:
    """One ring forgets what it has asked for, another asks: both are computed in one go."""
    data = noise()
    pool = Pool(data.train, data.mean, data.std, device)
    first = GraphCompute(mlp((1, 8, 8), 5), cross_entropy, pool, deterministic=True)
    second = GraphCompute(mlp((1, 8, 8), 5), cross_entropy, pool, deterministic=True, beside=first)
    a, b, c = (Batch(np.arange(16 * i, 16 * i + 16)) for i in range(3))
    plain = Compute(copy.deepcopy(first.network), cross_entropy, pool)
    expected = plain.score(0.5 * first.initial, [a, c])
    for _ in range(6):  # run as it stands at first, captured, replayed
        with first.later():
            first.score(first.initial, [a, b])
            first.score(first.initial, [c])  # now two scores wait
            second.score(second.initial, [b])
            second.score(second.initial, [c])  # and one, which nobody wants to know
            mine = first.score(0.5 * first.initial, [a, c])
            first.score(first.initial, [b])  # these wait with the two: they come first
        first.catch_up()
        for found, wanted in zip(mine, expected, strict=True):
            torch.testing.assert_close(found.wait(), wanted.wait(), **CLOSE)


RINGS: list[dict[str, Any]] = [
    {"seed": 1},
    {"seed": 2},
    {"seed": 1, "attack": {"name": "gaussian"}},
    {"seed": 1, "attack": {"name": "hidden"}},
    {"seed": 3, "attack": {"name": "rescale", "factor": 2.0}},
    {"seed": 3, "scheme": {"rule": "trust"}},
    {"seed": 6, "scheme": {"rule": "trust"}, "attack": {"name": "gaussian"}},
    {"seed": 5, "learning": {"rate": 0.01}},
    {"seed": 5, "ring": {"events": [{"node": 2, "leaves": 2, "returns": 4}]}},
]
TRUSTING: list[dict[str, Any]] = [
    {"seed": 1},
    {"seed": 2},
    {"seed": 1, "attack": {"name": "gaussian"}},  # its Byzantine nodes compute nothing
    {"seed": 4, "attack": {"name": "hidden"}},
    {"seed": 4, "attack": {"name": "garbage"}},
    {"seed": 3, "attack": {"name": "edge"}},  # which tries lies out
    {"seed": 2, "scheme": {"z": 1.0}},
    {"seed": 2, "scheme": {"extrapolate": 2.0}},
    {"seed": 7, "scheme": {"rule": "gauntlet"}},
    {"seed": 8, "scheme": {"by_class": True, "average": True}},
    {"seed": 5, "ring": {"events": [{"node": 2, "leaves": 2, "returns": 4}]}},
]


def setups(
    device: str, rings: Sequence[dict[str, Any]], rule: str, canonical: bool, **more: Any
) -> list[Setup]:
    data, made = noise(), []
    for ring in rings:
        tree: dict[str, Any] = {
            "ring": {"nodes": 9, "byzantine": 2, "connectivity": 4, **ring.get("ring", {})},
            **{key: value for key, value in ring.items() if key in ("seed", "attack")},
            "scheme": {"rounds": 4, "rule": rule, "canonical": canonical, **ring.get("scheme", {})},
            "learning": {"batch": 16, "local_steps": 2, **ring.get("learning", {})},
            **more,
        }
        machine = Machine(device, deterministic=True)
        made.append(set_up(parse(tree), Custom(dataset=data), machine))
    return made


def alone(setup: Setup) -> tuple[list[int | None], Tensor]:
    """By the plain path."""
    compute, keep = setup.compute, Keep()
    canonical = compute.canonical is not None
    plain = Compute(compute.network, cross_entropy, compute.pool, canonical=canonical)
    assert Simulation(replace(setup, compute=plain)).simulator(keep).run()
    return keep.found()


def joined(
    setups: Sequence[Setup], observers: Sequence[Keep], beside: GraphCompute | None = None
) -> list[Simulator]:
    """Simulators with one board."""
    pool = beside.pool if beside else setups[0].compute.pool
    made = []
    for setup, observer in zip(setups, observers, strict=True):
        compute = GraphCompute(
            setup.compute.network, cross_entropy, pool, deterministic=True,
            canonical=setup.recipe.canonical, beside=beside,
        )  # fmt: skip
        beside = beside or compute
        assert compute.joins
        assert compute.board is beside.board
        made.append(Simulation(replace(setup, compute=compute)).simulator(observer))
    return made


def run(simulators: Sequence[Simulator]) -> None:
    compute, nothing = simulators[0].compute, iter(())  # the first begins before the others
    running = [nothing, *(simulator.instants() for simulator in simulators)]
    sharing = lambda: Sharing.JOINED  # noqa: E731
    for _ in round_robin(running, compute.device, 64, sharing, lambda: compute.waited):
        pass


def close(canonical: bool) -> dict[str, Any]:
    """In the form, a factor of 1.001 is left out, one of 1.0011 is not."""
    return {"rtol": 0, "atol": 5e-3} if canonical else CLOSE


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("rule", ["lowest-loss", "trust"])
def test_each_ring_is_as_if_it_were_alone(
    device: str, rule: str, canonical: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: Counter[int] = Counter()  # how many rings took how many turns as one computation
    combined: Counter[int] = Counter()
    take, combine = Turns.take_together, Combined.__call__

    def counted(self: Turns, turn: Turn, pick: Any, commands: Tensor) -> None:
        together[len(commands)] += 1
        take(self, turn, pick, commands)

    def counted_too(self: Combined, tasks: Sequence[Task]) -> None:
        combined[len(tasks)] += 1
        combine(self, tasks)

    monkeypatch.setattr("basil.many.round_robin.STRETCH", 1e9)
    monkeypatch.setattr(Turns, "take_together", counted)
    monkeypatch.setattr(Combined, "__call__", counted_too)
    rings = RINGS if rule == "lowest-loss" else TRUSTING
    expected = [alone(setup) for setup in setups(device, rings, rule, canonical)]
    keeps = [Keep() for _ in rings]
    run(joined(setups(device, rings, rule, canonical), keeps))
    for keep, (chosen, final) in zip(keeps, expected, strict=True):
        found, models = keep.found()
        assert found == chosen
        torch.testing.assert_close(models, final, **close(canonical))
    if device == "cpu":  # where nothing is captured, each is seen
        assert together[6] + together[8] > 10
        assert rule != "trust" or combined[6] + combined[8] > 20


@pytest.mark.parametrize("scheme", ["ubar", "g-plain", "bridge", "nna", "clipped-gossip"])
def test_graphs_are_as_if_they_were_alone(device: str, scheme: str) -> None:
    """Who averages begins from what is in no canonical form: it is brought there afterwards."""
    graphs: list[dict[str, Any]] = [
        {"seed": seed, "attack": {"name": "gaussian"}, "scheme": {"name": scheme, "rounds": 4}}
        for seed in (1, 2)
    ]
    where = {"graph": {"name": "erdos-renyi", "p": 0.5}}
    expected = [alone(setup) for setup in setups(device, graphs, "lowest-loss", True, **where)]
    keeps = [Keep(), Keep()]
    run(joined(setups(device, graphs, "lowest-loss", True, **where), keeps))
    for keep, (_, final) in zip(keeps, expected, strict=True):
        _, models = keep.found()
        torch.testing.assert_close(models, final, **CLOSE)


@pytest.mark.parametrize("rule", RULES)
def test_rings_in_step_take_as_many_launches_as_one(
    device: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forget(Keep):  # or there are ever more places, and what waits is done before they grow
        def record(self, node: int, record: Record, time: float) -> None:
            pass

    launches: Counter[int] = Counter()
    do = Board.do

    def counted(self: Board, group: Group) -> None:
        launches[len(group.tasks)] += 1
        do(self, group)

    monkeypatch.setattr("basil.many.round_robin.STRETCH", 1e9)
    rings: list[dict[str, Any]] = [{"seed": seed, "ring": {"byzantine": 0}} for seed in range(4)]
    first = joined(setups(device, rings[:1], rule, False), [Forget()])
    run(first)  # all kinds of work are known
    beside = first[0].compute
    assert isinstance(beside, GraphCompute)
    monkeypatch.setattr(Board, "do", counted)
    run(joined(setups(device, rings[:1], rule, False), [Forget()], beside))
    one = launches.copy()
    launches.clear()
    run(joined(setups(device, rings, rule, False), [Forget() for _ in rings], beside))
    assert one.total() > 36  # turns
    assert launches == {4 * tasks: count for tasks, count in one.items()}


def test_what_all_nodes_score_at_once_makes_no_later_pass_wider(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gauntlet` scores x⁰ on each node's first batch; later models have S receivers, and their
    sender."""
    scored: Counter[int] = Counter()
    do = Board.do

    def counted(self: Board, group: Group) -> None:
        scored[
            group.kind.scores if isinstance(group.kind, Turn) else group.kind.scoring.scores
        ] += 1
        do(self, group)

    monkeypatch.setattr("basil.many.round_robin.STRETCH", 1e9)
    monkeypatch.setattr(Board, "do", counted)
    rings = [{"seed": seed} for seed in range(4)]
    run(joined(setups(device, rings, "gauntlet", True), [Keep() for _ in rings]))
    assert 1 <= scored[9] <= 4  # all nodes of a ring, at its beginning
    assert max(filter(None, scored), key=scored.__getitem__) == 5
    assert sum(scored[scores] for scores in scored if scores > 5) == scored[9]


@pytest.mark.parametrize("canonical", [False, True])
def test_rings_whose_byzantine_nodes_look_at_nothing_take_their_turns_together(
    device: str, canonical: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models have as many receivers as are benign, and lies come at other moments in each ring.

    A turn that is alike to no other's is taken in the same way: each way is compiled for itself.
    """
    taken: Counter[int] = Counter()  # trainings, by the number of rings in one launch
    formed: Counter[int] = Counter()  # and lies that are brought to canonical form
    do = Board.do

    def counted(self: Board, group: Group) -> None:
        if not isinstance(group.kind, Turn):
            formed[len(group.tasks)] += len(group.tasks)
        elif group.kind.sizes:
            taken[len(group.tasks)] += len(group.tasks)
        do(self, group)

    monkeypatch.setattr("basil.many.round_robin.STRETCH", 1e9)
    monkeypatch.setattr(Board, "do", counted)
    monkeypatch.setattr(Turns, "take", None)  # one ring's
    rings: list[dict[str, Any]] = [
        {"seed": seed, "attack": {"name": "gaussian"}, "ring": {"nodes": 20, "byzantine": 6}}
        for seed in range(4)
    ]
    run(joined(setups(device, rings, "lowest-loss", canonical), [Keep() for _ in rings]))
    assert taken.total() == 4 * 14 * 4
    assert taken[4] > 0.8 * taken.total()  # in the first round models are few, in each ring others
    assert (formed.total() >= 0.9 * 4 * 6 * 4) == canonical  # (the first of all is no launch)
    assert formed[1] <= 0.4 * formed.total()  # several of one ring, too


@pytest.mark.parametrize("turns", range(10, 19))
def test_joined_rings_go_on_from_a_checkpoint(device: str, turns: int) -> None:
    """Each is stopped after some turns, saved, and taken up again beside the others."""

    class Stop(Keep):
        def instant(self, simulator: Any) -> bool:
            if len(self.records) < turns:
                return True
            self.snapshot = copy.deepcopy(simulator.snapshot())  # as it is at this moment
            return False

    rings = TRUSTING[:4]
    expected = [alone(setup) for setup in setups(device, rings, "trust", False)]
    stops, keeps = [Stop() for _ in rings], [Keep() for _ in rings]
    run(joined(setups(device, rings, "trust", False), stops))
    again = joined(setups(device, rings, "trust", False), keeps)
    for simulator, stop, keep in zip(again, stops, keeps, strict=True):
        simulator.restore(stop.snapshot)
        keep.records += stop.records
    run(again)
    for keep, (chosen, final) in zip(keeps, expected, strict=True):
        found, models = keep.found()
        assert found == chosen
        torch.testing.assert_close(models, final, **CLOSE)
