"""Noise on shared samples: as much as the account says, and no more than a sample can bear."""

import math

import numpy as np
import pytest

from basil.data import Dataset, Samples
from basil.data.noise import Noise
from basil.errors import UserError


def dataset(x: np.ndarray, classes: int = 4) -> Dataset:
    y = np.arange(len(x)) % classes if classes else np.zeros(len(x), np.float32)
    part, channels = Samples(x, y), x.shape[1] if x.ndim == 4 else 1
    names = tuple("abcd"[:classes])
    return Dataset("toy", part, part, classes, names, (3.0,) * channels, (2.0,) * channels)


def test_long_samples_are_cut_and_the_noise_has_the_width_of_the_account() -> None:
    x = np.full((4000, 9), 3.0, np.float32)
    x[0] += 2000.0  # z = 1000 in each of 9 coordinates, where ‖z‖ may be 3 · 0.5
    data, noise = dataset(x), Noise(1.0, 1e-5, 0.5, 0.0)
    assert noise.sensitivity(data) == pytest.approx(2 * 0.5 * 3)
    made = [noise.of(data.train, data, np.random.default_rng(s)) for s in range(2)]
    z = (made[0].x - 3.0) / 2.0
    assert z[1:].std() == pytest.approx(noise.sigma(data), rel=0.02)
    assert abs(z[1:].mean()) < 3 * noise.sigma(data) / math.sqrt(z[1:].size)
    assert np.linalg.norm(z[0]) < 1.5 + 6 * noise.sigma(data) * 3  # 3000 before it was cut
    assert not np.array_equal(made[0].x, made[1].x)
    np.testing.assert_array_equal(made[0].y, data.train.y)


def test_two_samples_can_be_told_apart_no_better_than_promised() -> None:
    """Monte Carlo: for the two samples furthest apart, over all thresholds of the release."""
    count, epsilon, delta = 400_000, 1.0, 0.05
    far = np.concatenate([np.full((count, 1), 100.0), np.full((count, 1), -100.0)])
    data, noise = dataset(far.astype(np.float32)), Noise(epsilon, delta, 1.0, 0.0)
    x = noise.of(data.train, data, np.random.default_rng(7)).x.ravel()
    high, low = np.sort(x[:count]), np.sort(x[count:])
    cuts = np.linspace(low[0], high[-1], 400)
    above = [1 - np.searchsorted(side, cuts) / count for side in (high, low)]
    found = float((above[0] - math.exp(epsilon) * above[1]).max())
    assert found == pytest.approx(delta, abs=0.005)  # met, and not undercut either


def test_pixels_stay_bytes() -> None:
    x = np.random.default_rng(0).integers(0, 256, (50, 3, 4, 4), dtype=np.uint8)
    data = dataset(x)
    made = Noise(1.0, 1e-5, 1.0, 0.0).of(data.train, data, np.random.default_rng(1))
    assert made.x.dtype == np.uint8
    assert made.x.shape == x.shape
    assert {0, 255} <= set(made.x.ravel().tolist())  # an ε of 1: black and white
    gentle = Noise(1e9, 1e-5, 100.0, 0.0).of(data.train, data, np.random.default_rng(1))
    assert np.abs(gentle.x.astype(int) - x).max() <= 1  # next to no noise: only rounded


def test_labels_stay_with_the_probability_of_randomised_response() -> None:
    data = dataset(np.zeros((40_000, 1), np.float32))
    made = Noise(1.0, 1e-5, 1.0, 1.5).of(data.train, data, np.random.default_rng(3))
    stays = math.exp(1.5) / (math.exp(1.5) + 3)
    assert np.mean(made.y == data.train.y) == pytest.approx(stays, abs=0.01)
    for other in range(1, 4):  # the others alike
        share = np.mean((made.y - data.train.y) % 4 == other)
        assert share == pytest.approx((1 - stays) / 3, abs=0.01)
    facts = Noise(1.0, 1e-5, 1.0, 1.5).facts(data, 10)
    assert facts["epsilon_of_a_sample"] == 2.5
    assert facts["epsilon_of_all_samples_of_a_node"] > 15 + 1


def test_numbers_to_predict_have_no_labels_to_lie_about() -> None:
    data = dataset(np.zeros((4, 1), np.float32), classes=0)
    with pytest.raises(UserError, match="no class labels"):
        Noise(1.0, 1e-5, 1.0, 1.0).of(data.train, data, np.random.default_rng(0))
