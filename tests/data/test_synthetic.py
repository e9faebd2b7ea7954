"""The synthetic problems are what they say: convex, with the optimum where it should be."""

import numpy as np
import pytest
import torch

from basil.data import least_squares_optimum, load
from basil.errors import UserError


def test_regression_recovers_the_truth_without_noise():
    data = load("synthetic", 0, task="regression", samples=200, features=7, noise=0.0)
    assert data.classes == 0
    assert data.class_names == ()
    assert data.train.y.dtype == np.float32
    w = least_squares_optimum(data.train)
    assert w.dtype == np.float64
    assert w.shape == (7,)
    # The test set has the same truth, so the optimum of the one explains the other.
    assert data.test.x @ w == pytest.approx(data.test.y, abs=1e-5)


def test_regression_noise_has_its_size_and_the_gradient_vanishes_at_the_optimum():
    data = load("synthetic", 0, task="regression", noise=0.5)
    w = least_squares_optimum(data.train)
    residual = data.train.x @ w - data.train.y
    assert residual.std() == pytest.approx(0.5, rel=0.05)
    assert np.abs(data.train.x.T.astype(np.float64) @ residual).max() < 1e-3


def softmax_optimum(samples, classes):
    """Minimum of the mean cross-entropy of a linear model without bias, by L-BFGS in float64."""
    a, y = torch.from_numpy(samples.x).double(), torch.from_numpy(samples.y)
    W = torch.zeros(classes, a.shape[1], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [W],
        max_iter=200,
        tolerance_grad=1e-10,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(a @ W.T, y)
        loss.backward()
        return loss

    optimiser.step(closure)
    closure()  # the last gradient of a line search is not that of the point it chose
    assert W.grad is not None
    return W.detach(), W.grad.norm().item()


def test_classification_has_a_finite_optimum_that_predicts():
    data = load("synthetic", 0)
    assert data.train.x.dtype == np.float32
    assert data.train.x.shape == (2000, 20)
    assert data.test.x.shape == (500, 20)
    assert np.bincount(data.train.y, minlength=5).min() > 100
    W, gradient = softmax_optimum(data.train, 5)
    assert gradient < 1e-8
    assert W.norm() < 100  # separable samples would send it to infinity
    right = (torch.from_numpy(data.test.x).double() @ W.T).argmax(1).numpy() == data.test.y
    assert 0.6 < right.mean() < 0.95


def test_classification_noise_of_one_leaves_nothing_to_learn():
    data = load("synthetic", 0, classes=4, noise=1.0)
    W, _ = softmax_optimum(data.train, 4)
    right = (torch.from_numpy(data.test.x).double() @ W.T).argmax(1).numpy() == data.test.y
    assert right.mean() == pytest.approx(0.25, abs=0.08)


def test_train_and_test_share_no_sample():
    data = load("synthetic", 0)
    assert not set(map(bytes, data.train.x)) & set(map(bytes, data.test.x))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"task": "ranking"}, "task = 'ranking'.*classification, regression"),
        ({"samples": 0}, "samples = 0"),
        ({"features": 0}, "features = 0"),
        ({"classes": 1}, "classes = 1.*at least 2"),
        ({"noise": 1.5}, "noise = 1.5.*0 to 1"),
        ({"task": "regression", "noise": -1.0}, "noise = -1.0.*0 or more"),
        ({"task": "regression", "noise": float("nan")}, "noise = nan"),
    ],
)
def test_impossible_options(options, says):
    with pytest.raises(UserError, match=says):
        load("synthetic", 0, **options)
