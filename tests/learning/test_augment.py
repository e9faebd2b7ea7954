"""Images that are moved and mirrored: how, is part of a sample's number."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from basil.data import Dataset, Samples
from basil.errors import UserError
from basil.experiment import Custom, Machine, Setup, Simulation, set_up
from basil.learning.cuda import GraphCompute
from basil.learning.models import cross_entropy
from basil.learning.pool import CODED, Pool, augment
from basil.recipe import parse


def images(channels: int = 3) -> Dataset:
    stream = np.random.default_rng(0)
    x = stream.integers(0, 256, (300, channels, 8, 8), dtype=np.uint8)
    part = Samples(x, stream.integers(0, 5, 300))
    scale = (120.0,) * channels, (60.0,) * channels
    return Dataset("noise", part, part, 5, tuple("abcde"), *scale)


def by_hand(image: np.ndarray[Any, Any], code: int) -> np.ndarray[Any, Any]:
    """A margin of 1 around 8×8; nine places, each plain and mirrored, the middle one first."""
    wide = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    places = [(1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (0, 0), (0, 1), (0, 2), (1, 0)]
    down, across = places[code // 2 % 9]
    crop = wide[:, down : down + 8, across : across + 8]
    return crop[:, :, ::-1] if code % 2 else crop


@pytest.mark.parametrize("channels", [1, 3])
def test_every_way_by_hand(channels: int) -> None:
    data = images(channels)
    pool = Pool(data.train, data.mean, data.std, augmented=True)
    for code in range(20):
        x, y = pool.take(torch.tensor([7 + CODED * code, 250]))
        moved = by_hand(data.train.x[7], code)
        np.testing.assert_allclose(x[0].numpy(), (moved.astype(float) - 120) / 60, rtol=1e-5)
        assert y.tolist() == data.train.y[[7, 250]].tolist()
        assert torch.equal(x[1], pool.take(slice(250, 251))[0][0])  # no code: as it is
    assert torch.equal(pool.x, torch.from_numpy(data.train.x))


def test_all_ways_occur_alike() -> None:
    codes = augment(np.full(90_000, 3), np.random.default_rng(1)) // CODED
    found = Counter((codes % 2 + 2 * (codes // 2 % 9)).tolist())
    assert len(found) == 18
    assert all(4600 < count < 5400 for count in found.values())  # 5000, and over five deviations


def ring(data: Dataset, augmented: bool, **changes: Any) -> Setup:
    tree: dict[str, Any] = {
        "data": {"augment": augmented},
        "ring": {"nodes": 6, "byzantine": 1, "connectivity": 3},
        "scheme": {"rounds": 3},
        "learning": {"batch": 16, "model": "mlp"},
        "attack": {"name": "gaussian"},
        **changes,
    }
    return set_up(parse(tree), Custom(dataset=data), Machine("cpu"))


class Last:
    """An observer that keeps the last model."""

    def record(self, node: int, record: Any, time: float) -> None:
        self.model = record.model

    def instant(self, simulator: object) -> bool:
        return True


def trained(setup: Setup) -> torch.Tensor:
    last = Last()
    assert Simulation(setup).simulator(last).run()
    return last.model


def test_a_run_is_trained_on_other_images_and_tested_on_the_same() -> None:
    data = images()
    plain, first, again = (ring(data, augmented) for augmented in (False, True, True))
    assert torch.equal(plain.test.x, first.test.x)
    models = [trained(setup) for setup in (plain, first, again)]
    assert torch.equal(models[1], models[2])
    assert not torch.allclose(models[0], models[1], atol=1e-3)


def test_on_a_gpus_path_likewise() -> None:
    data, setups = images(), [ring(images(), True) for _ in range(2)]
    pool = Pool(data.train, data.mean, data.std, augmented=True)
    fast = GraphCompute(
        setups[1].compute.network, cross_entropy, pool, deterministic=True, canonical=True
    )
    expected, found = trained(setups[0]), trained(replace(setups[1], compute=fast))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_only_images_can_be() -> None:
    part = Samples(np.zeros((120, 7), np.float32), np.arange(120) % 3)
    flat = Dataset("flat", part, part, 3, tuple("abc"), (0.0,), (1.0,))
    with pytest.raises(
        UserError, match=r"data.augment = true: .* samples of flat have the shape 7"
    ):
        ring(flat, True)
