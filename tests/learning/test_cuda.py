"""The GPU's path against the plain one.

Its text runs on a CPU as well, only uncaptured: so these tests run everywhere, and once more on the
GPU where there is one.  Tolerance: float32 throughout (`deterministic`), so that only the order of
sums may differ.
"""

import copy
import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from basil.data import Dataset, Samples
from basil.experiment import Custom, Machine, Simulation, set_up
from basil.learning.compute import Compute
from basil.learning.cuda import GraphCompute
from basil.learning.cuda.late import LateSelection
from basil.learning.cuda.places import Models
from basil.learning.metrics import metrics_named
from basil.learning.models import cifar_cnn, cross_entropy
from basil.learning.pool import Batch, Pool
from basil.learning.promises import Losses
from basil.protocol.requests import Record, Train
from basil.protocol.rules import RULES
from basil.protocol.schemes import GROUP_SCHEMES
from basil.recipe import parse

CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-6}
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
    ),
]
pytestmark = pytest.mark.parametrize("device", DEVICES)


def norm_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 5), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 10)
    )


def dropout_net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 30), nn.Dropout(0.5), nn.Linear(30, 10))


NETWORKS = {"cnn": lambda: cifar_cnn((3, 32, 32), 10), "norm": norm_net, "dropout": dropout_net}


def both(name: str, device: str, **options: Any) -> tuple[Compute, GraphCompute, list[Batch]]:
    torch.manual_seed(0)
    stream = np.random.default_rng(0)
    x = stream.integers(0, 256, (500, 3, 32, 32), dtype=np.uint8)
    pool = Pool(Samples(x, stream.integers(0, 10, 500)), (120.0,) * 3, (60.0,) * 3, device)
    module = NETWORKS[name]()
    plain = Compute(copy.deepcopy(module), cross_entropy, pool)
    fast = GraphCompute(module, cross_entropy, pool, deterministic=True, **options)
    batches = [Batch(stream.permutation(500)[:20]) for _ in range(7)]
    return plain, fast, batches


def lowest(losses: Tensor, means: Tensor) -> Tensor:
    return means.argmin()


def share_alike(start: Tensor, a: Tensor, b: Tensor) -> float:
    """Of the weights after two trainings, which have gone the same way as a whole.

    Which of two pixels is the larger, or whether a unit is active, may hang on the last bit of a
    CPU's arithmetic, and with it that unit's weights: so the mean over trainings is asked for.
    """
    assert (a - b).norm() < 0.02 * (a - start).norm()
    return float(torch.isclose(a, b, **CLOSE).double().mean())


def test_metrics_between_turns(device: str) -> None:
    """They are measured by the network itself: what is captured of it is not disturbed."""
    plain, fast, batches = both("norm", device)
    asked = metrics_named(["auc", "perplexity"], {})
    models = [plain.initial]
    for turn in range(3):
        some = batches[turn : turn + 2]
        models.append(fast.train(models[-1], some, 0.05, lambda: 7))
        expected = plain.train(models[-2], some, 0.05, lambda: 7)
        torch.testing.assert_close(models[-1], expected, **CLOSE)
        by_plain, found = (c.test(models, c.pool, 250, asked).wait() for c in (plain, fast))
        np.testing.assert_allclose(found, by_plain, rtol=1e-3)


@pytest.mark.parametrize("name", NETWORKS)
def test_scores_and_steps(device: str, name: str) -> None:
    plain, fast, batches = both(name, device)
    model = plain.initial
    for turn in range(8):  # run as it stands at first, captured, replayed
        some = batches[: 7 - turn % 3]  # the number of receivers differs from turn to turn
        for a, b in zip(plain.score(model, some), fast.score(model, some), strict=True):
            torch.testing.assert_close(a.wait(), b.wait(), **CLOSE)
        expected = plain.train(model, batches[:3], 0.05, lambda: 7)
        found = fast.train(model, batches[:3], 0.05, lambda: 7)
        torch.testing.assert_close(found, expected, **CLOSE)
        assert not torch.equal(found, model)
        model = found


@pytest.mark.parametrize("name", NETWORKS)
def test_several_models_on_one_batch(device: str, name: str) -> None:
    plain, fast, batches = both(name, device)
    models = [plain.initial * factor for factor in (1.0, 0.5, 0.9, 2.0, torch.nan, 0.1)]
    for batch in batches:  # often enough to be captured on a GPU
        expected = torch.stack([plain.score(model, [batch])[0].wait() for model in models])
        torch.testing.assert_close(
            fast.score_all(torch.stack(models), batch).wait(), expected, **CLOSE
        )
        models = [*models[1:], models[0]]


def test_losses_from_elsewhere_are_copied_once(device: str) -> None:
    plain, fast, _ = both("cnn", device)
    models, own = [plain.initial, 0.5 * plain.initial], plain.initial
    worse, better = (Losses(torch.full((16,), value, device=device)) for value in (2.0, 1.0))
    places = []
    for _ in range(2):
        selection = fast.select(models, [worse, better], own, lowest)
        assert isinstance(selection, LateSelection)
        assert selection.index == 1
        places.append([losses.place for losses in selection.losses])
    assert places[0] == places[1]


@pytest.mark.parametrize("name", NETWORKS)
def test_scored_selected_and_trained_in_one(device: str, name: str) -> None:
    plain, fast, batches = both(name, device)
    stored = [plain.train(plain.initial, [batch], 0.3, lambda: 1) for batch in batches[:3]]
    alike: list[float] = []
    for turn in range(8):
        mine, receivers = batches[turn % 7], [batches[turn % 7], batches[(turn + 1) % 7]]
        newest = stored[-1]
        early = {c: [c.score(m, [mine])[0] for m in stored[:-1]] for c in (plain, fast)}
        late = {c: c.score(newest, receivers) for c in (plain, fast)}
        trained, index = [], []
        for c in (plain, fast):
            losses: list[Losses] = [*early[c], late[c][0]]
            selection = c.select(stored, losses, plain.initial, lowest)
            trained.append(c.train(selection, [mine, batches[0]], 0.1, lambda: 1))
            index.append(selection.index)
        assert index[0] == index[1]
        alike.append(share_alike(stored[index[0]], *trained))
        torch.testing.assert_close(late[plain][1].wait(), late[fast][1].wait(), **CLOSE)
        stored = [*stored[1:], trained[1]]
    assert np.mean(alike) > 0.99


def test_a_selection_can_be_read_before_it_is_trained(device: str) -> None:
    plain, fast, batches = both("cnn", device)
    models = [plain.train(plain.initial, [b], 0.5, lambda: 1) for b in batches[:2]]
    losses = [fast.score(model, [batches[0]])[0] for model in models]
    selection = fast.select(models, losses, plain.initial, lowest)
    means = [promise.wait().mean() for promise in losses]
    assert selection.index == int(means[1] < means[0])
    assert torch.equal(selection.model(), models[selection.index])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_garbage_is_refused_on_the_device(device: str, bad: float) -> None:
    plain, fast, batches = both("cnn", device)
    garbage = plain.initial.clone()
    garbage[-1] = bad
    losses = fast.score(garbage, [batches[0]])
    assert losses[0].wait().tolist() == [torch.inf] * 20
    own = plain.train(plain.initial, [batches[1]], 0.1, lambda: 1)
    selection = fast.select([garbage], losses, own, lowest)
    assert selection.index == 1  # one's own
    assert torch.equal(selection.model(), own)


def test_batches_of_unequal_size(device: str) -> None:
    plain, fast, _ = both("cnn", device)
    batches = [Batch(np.arange(n)) for n in (5, 20, 5, 11)]
    for a, b in zip(
        plain.score(plain.initial, batches), fast.score(plain.initial, batches), strict=True
    ):
        torch.testing.assert_close(a.wait(), b.wait(), **CLOSE)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("count", [2, 11, 40])
def test_trainings_side_by_side(device: str, name: str, count: int) -> None:
    """More of them than there are streams, again and again, so that memory is used again."""
    plain, fast, batches = both(name, device)
    models = [plain.initial + 0.01 * i / count for i in range(count)]
    alike: list[float] = []
    for turn in range(6):
        jobs = [
            Train(model, (batches[i % 7], batches[(i + turn) % 7])[i % 3 == 0 :], 0.1, lambda: 0)
            for i, model in enumerate(models)
        ]
        expected, found = plain.train_together(jobs), fast.train_together(jobs)
        alike += map(share_alike, models, expected, found)
        models = found
    assert np.mean(alike) > 0.99


def test_test_set(device: str) -> None:
    plain, fast, batches = both("cnn", device)
    models = [plain.train(plain.initial, [b], 0.5, lambda: 1) for b in batches]
    for some in (models[:2], models, models):
        expected, found = (np.array(c.test(some, c.pool, 450).wait()) for c in (plain, fast))
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_two_test_sets_by_turns(device: str) -> None:
    """More models than before on one of them must not disturb what was captured for the other."""
    plain, fast, batches = both("cnn", device)
    models = [plain.train(plain.initial, [b], 0.5, lambda: 1) for b in batches]
    samples = Samples(
        np.ascontiguousarray(plain.pool.x[:90].cpu()), plain.pool.y[:90].cpu().numpy()
    )
    other = Pool(samples, (120.0,) * 3, (60.0,) * 3, device)
    for many in (2, 2, 2, 7, 2, 7):
        for pool, n in ((plain.pool, 200), (other, 90)):
            some = models[:many] if pool is other else models[:2]
            expected, found = (np.array(c.test(some, pool, n).wait()) for c in (plain, fast))
            np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_node_scores_its_model_with_those_who_receive_it(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one pass.  But x⁰, which a hundred nodes score for themselves, is not one of a hundred."""
    plain, fast, batches = both("cnn", device)
    passes, post = list[int](), fast.board.post

    def counted(ring: int, kind: Any, task: Any, pick: Any = None) -> None:
        passes.append(kind.scores)
        post(ring, kind, task, pick)

    monkeypatch.setattr(fast.board, "post", counted)
    model = plain.train(plain.initial, batches[:1], 0.1, lambda: 1)
    found = fast.score(model, batches[:1]) + fast.score(model, batches[1:4])
    for one, other in zip(found, plain.score(model, batches[:4]), strict=True):
        torch.testing.assert_close(one.wait(), other.wait(), **CLOSE)
    assert passes == [4]
    found = [fast.score(plain.initial, [batch])[0] for batch in batches]
    for one, other in zip(found, plain.score(plain.initial, batches), strict=True):
        torch.testing.assert_close(one.wait(), other.wait(), **CLOSE)
    assert max(passes[1:]) == 2


def test_places_are_used_again_and_grow(device: str) -> None:
    plain, fast, batches = both("cnn", device)
    # More than there are places at first:
    kept = [fast.score(plain.initial, batches[:1])[0] for _ in range(1100)]
    assert len(fast.board.losses.tensor) > 1100
    expected = plain.score(plain.initial, batches[:1])[0].wait()
    torch.testing.assert_close(kept[0].wait(), expected, **CLOSE)
    size = len(fast.board.losses.tensor)
    kept.clear()
    gc.collect()
    for _ in range(3000):
        fast.score(plain.initial, batches[:1])
    assert len(fast.board.losses.tensor) == size


def test_a_row_is_never_another_models(device: str) -> None:
    """Models come and go, more of them than there are rows, and Python uses their ids again."""
    models = Models(5, 3, torch.device(device))
    stream = np.random.default_rng(1)
    alive: list[Tensor] = []
    for step in range(300):
        alive.append(torch.full((3,), float(step), device=device))
        if len(alive) > 7:
            del alive[int(stream.integers(len(alive)))]
        models.begin()
        some = [alive[int(i)] for i in stream.integers(len(alive), size=4)]
        rows = [models.row(model) for model in some]
        assert all(torch.equal(models.matrix[r], m) for r, m in zip(rows, some, strict=True))


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


def on_both_paths(
    device: str,
    attack: str,
    scheme: str,
    sharing: dict[str, Any] | None = None,
    rule: str = "lowest-loss",
    extrapolate: float = 0.0,
) -> tuple[list[list[int | None]], list[Tensor]]:
    """Whose models were chosen in a whole run, and the last ones: plain, and by the GPU's text."""
    ring = {"nodes": 9, "byzantine": 2, "connectivity": 4}
    if scheme in GROUP_SCHEMES:
        ring = {"nodes": 12, "byzantine": 2, "connectivity": 3, "groups": 3}
    recipe = parse(
        {
            "ring": ring,
            "sharing": sharing or {},
            "scheme": {"name": scheme, "rounds": 4, "rule": rule, "extrapolate": extrapolate},
            "learning": {"batch": 16, "local_steps": 2},
            "attack": {"name": attack},
        }
    )
    chosen: list[list[int | None]] = []
    final: list[Tensor] = []
    for fast in (False, True):
        experiment = set_up(recipe, Custom(dataset=noise()), Machine(device, deterministic=True))
        pool, module = experiment.compute.pool, experiment.compute.network
        compute = (
            GraphCompute(module, cross_entropy, pool, deterministic=True)
            if fast
            else Compute(module, cross_entropy, pool)
        )
        keep = Keep()
        assert Simulation(replace(experiment, compute=compute)).simulator(keep).run()
        made = [record for _, record in keep.records if record.selected is not None]
        chosen.append([record.chosen for record in made])
        final.append(torch.stack([record.model for _, record in keep.records[-9:]]))
    return chosen, final


@pytest.mark.parametrize(
    "attack", ["none", "gaussian", "layer-sign-flip", "inverse", "garbage", "brink"]
)
@pytest.mark.parametrize("scheme", ["basil", "r-plain", "basil+", "r-plain+"])
def test_a_ring_makes_the_same_selections(device: str, attack: str, scheme: str) -> None:
    """A whole run in the simulator, on this path and on the plain one.

    On several rings their nodes act at the same moments: scores and selections of one ring are
    asked for between those of another.
    """
    chosen, final = on_both_paths(device, attack, scheme)
    if device == "cpu" or scheme != "basil+":  # where nodes have one model from several, as good
        assert chosen[0] == chosen[1]
    if scheme in ("basil", "basil+"):  # R-plain goes on from whatever it is sent, however huge
        torch.testing.assert_close(final[0], final[1], **CLOSE)


@pytest.mark.parametrize("attack", ["none", "gaussian", "garbage"])
@pytest.mark.parametrize("rule", RULES)
def test_so_it_does_by_any_rule(device: str, attack: str, rule: str) -> None:
    chosen, final = on_both_paths(device, attack, "basil", rule=rule)
    assert chosen[0] == chosen[1]
    if rule != "newest" or attack == "none":  # it goes on from whatever it is sent, however huge
        torch.testing.assert_close(final[0], final[1], **CLOSE)


@pytest.mark.parametrize("rule", ["lowest-loss", "trust"])
def test_so_it_does_with_turns_that_begin_ahead(device: str, rule: str) -> None:
    (chosen, again), (plain, fast) = on_both_paths(
        device, "gaussian", "basil", rule=rule, extrapolate=2.0
    )
    assert chosen == again
    torch.testing.assert_close(plain, fast, **CLOSE)
    _, (without, _) = on_both_paths(device, "gaussian", "basil", rule=rule)
    assert not torch.allclose(plain, without, **CLOSE)  # some did


@pytest.mark.parametrize("scheme", ["basil", "ubar"])
@pytest.mark.parametrize("attack", ["gaussian", "label-flip", "overfit-shared"])
@pytest.mark.parametrize(
    "sharing",
    [
        {"dummies": "noise"},
        {"dummies": "held-out", "public": 0.1},  # samples that no node owns are trained on
        {"epsilon": 1000.0, "label_epsilon": 3.0},  # and so are noisy copies
    ],
)
def test_so_does_one_that_has_shared_data(
    device: str, attack: str, scheme: str, sharing: dict[str, Any]
) -> None:
    part = {"alpha": 0.2, "batches": 2, "groups": 2, **sharing}
    chosen, final = on_both_paths(device, attack, scheme, part)
    assert chosen[0] == chosen[1]
    torch.testing.assert_close(final[0], final[1], **CLOSE)
